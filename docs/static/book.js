// The lines beside a hit are fetched from its page, which browsers refuse on file://. The hits themselves are there either way.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
