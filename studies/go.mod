module github.com/seed621a2839/reweight/studies

go 1.26.0

replace github.com/seed621a2839/reweight => ..

require (
	github.com/seed621a2839/reweight v0.0.0-00010101000000-000000000000
	gonum.org/v1/gonum v0.17.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/klauspost/cpuid/v2 v2.4.2 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
