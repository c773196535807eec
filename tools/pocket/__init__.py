"""The seeded scripts that build the models in `helpers/pocket/`, and the generators behind them."""
