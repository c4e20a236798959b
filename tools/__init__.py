"""Programs that the project needs to be built and tested, none of which it ships."""
