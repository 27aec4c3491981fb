"""xalign-ray: one platform on which the methods that align an encoder's languages are recipes."""

__version__ = "0.1.0"
