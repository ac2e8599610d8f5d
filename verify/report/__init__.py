"""One record of a verification, and its writers: text, JSON, JUnit XML and one HTML page."""
