"""The console: a static site about published lakes."""
