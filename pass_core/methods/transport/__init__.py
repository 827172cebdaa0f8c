"""Parts of the transport method."""
