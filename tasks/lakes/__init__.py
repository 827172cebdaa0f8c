"""Reading the records of a data lake."""
