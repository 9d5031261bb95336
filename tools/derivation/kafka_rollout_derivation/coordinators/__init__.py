"""The coordinators of a release, asked through their own classes."""
