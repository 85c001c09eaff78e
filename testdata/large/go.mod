// A module of its own, so that Go does not pack what lies here into the module that
// others download. Tests of a clone read it.
module github.com/seed621a2839/reweight/testdata/large

go 1.26
