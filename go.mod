module github.com/seed621a2839/reweight

go 1.26
