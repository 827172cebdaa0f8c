"""Great Expectations suites for records and releases."""
