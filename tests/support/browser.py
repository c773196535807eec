"""A written page in a real browser, and what it says on the console."""

import subprocess

from needed import program

OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
]


def browse(page, profile, *options) -> tuple[str, list[str]]:
    """Load a file or an address in headless Chromium; returns standard output and what the page
    wrote to the console.
    """
    command = [
        program("chromium"),
        *OPTIONS,
        f"--user-data-dir={profile}",
        *options,
        page if isinstance(page, str) else page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
