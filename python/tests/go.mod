// The tests of the Python package are no part of the module that Go downloads.
module github.com/seed621a2839/reweight/python/tests

go 1.26
