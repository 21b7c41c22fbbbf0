"""A package, so that its tests can share a browser that ends with the last of them."""
