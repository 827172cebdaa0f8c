"""The paper's tables on the data at hand: definitions, cells that are computed once, and pages with ours beside the paper's."""
