// Command libcuda is a false CUDA driver that computes. Built with
//
//	go build -buildmode=c-shared -o libcuda.so ./gpu/internal/libcuda
//
// it is a library with those functions of libcuda that a caller of this project's kernels
// needs. It has two devices, whose kernels package ptx interprets, so that a program in
// any language that launches them is tested without a GPU, down to the bits of its
// results. Only tests use it: REWEIGHT_LIBCUDA is how they name it.
//
// It takes the modules of package device and no other text. A launch is done when it
// returns. An error of a kernel goes to standard error; the calls after it fail.
// REWEIGHT_PTX_SEED, a number, chooses the order in which threads run. REWEIGHT_PTX_PLANT makes kernels of the second
// device wrong: "multiply,mul.rn.f32,add.rn.f32" for example.
package main

func main() {}
