"""From a fitted model to released rows."""
