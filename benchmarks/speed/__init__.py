"""Speed and memory of CORY, compared with baselines and with the limits of the machine."""
