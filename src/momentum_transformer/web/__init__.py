"""The live page: models complete a picture pixel by pixel, in a browser on this machine."""
