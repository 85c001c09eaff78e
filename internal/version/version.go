// Package version has the version of what a release has.
package version

// Version is that of the C library, of the Python package and of releases, whose tag is v and
// the version. It stands here only: go generate ./... takes it to Python.
const Version = "0.1.0"
