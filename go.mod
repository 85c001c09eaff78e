module github.com/seed621a2839/reweight

go 1.26.0

require (
	golang.org/x/sys v0.49.0
	pgregory.net/rapid v1.3.0
)
