"""The embedded model of worked arithmetic: how its corpus is made and how it was pretrained."""
