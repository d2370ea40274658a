"""The state of a stream: small manifests that Spark keeps, and immutable run files beside its checkpoint."""
