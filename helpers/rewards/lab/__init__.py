"""The laboratory: rewards are tried, attacked, measured and timed before they train anything.

`measures.Lab` takes rewards with weights, labelled cases and attacks. It returns measures, and a go
or no-go decision with its reasons.
"""
