// Package ptx runs the project's CUDA kernels without a GPU: it interprets the PTX
// text that clang makes of them. Only tests use it. It implements driver.Driver, so
// package gpu runs on it as it runs on a real GPU.
//
// It is exact: every instruction gives the bits that a GPU gives, and what it cannot
// give exactly it refuses. It is also stricter than a GPU, so that a kernel that only
// works by luck fails here. What it checks:
//
//   - The text. An instruction that is not in the package's table is an error when the
//     module is opened, with its line. So are all roundings but .rn (to the nearest,
//     ties to even), flushing of subnormals (.ftz), saturation (.sat), approximations
//     (.approx), operands whose registers have another size or kind than the
//     instruction, and what no kernel of the project has: local and constant memory,
//     generic addresses of shared memory, atomic operations on it, and masks that do not
//     name all lanes.
//   - Order. The lanes of a warp run apart from one synchronising instruction to the
//     next (bar.warp.sync, shfl, vote, match, bar.sync), in an order that
//     is shuffled at each step; so are warps and CTAs. Options.Seed chooses it.
//   - Synchronisation. All 32 lanes must come to the same instruction, and none may have
//     exited. Lanes that wait for each other in vain are a deadlock, and the error says
//     which lane waits where.
//   - Races in shared memory. Two lanes that meet at one byte, at least one of them
//     storing, need a bar.warp.sync (within a warp) or a bar.sync (within a CTA)
//     between them: shfl, vote and match order no memory in PTX's memory model, and so
//     do not count here.
//   - cp.async. What it brings may not be touched before the lane that asked for it
//     has waited for it. The source is read at once or at the wait, by chance.
//   - Memory. Each access must lie within one allocation and be aligned. A byte that
//     nobody has written may not be loaded (cp.async may copy it, and then the copy may
//     not be loaded). Division of integers by zero is an error.
//
// One CTA runs at a time, to its end. So a kernel in which a CTA waits for another
// does not come to an end here, and races between CTAs are found only as far as the
// order of the CTAs shows them. Every store is seen by everybody at once, so a fence
// (membar) that a GPU needs can be missing here.
package ptx
