package gpu

// A Batch is a reweight.Batch in device memory: the addresses of its arrays, and the
// sizes that the host must know. An array that is not set has the address 0. A method
// reads only the arrays that it names.
//
// Role holds reweight.Role, one byte each. That the roles and SeqOffsets are right is
// checked on the device, by every method that reads them.
type Batch struct {
	Tokens       int // T
	Trajectories int // S

	Role       Ptr // [T] uint8: 0 masked, 1 reasoning, 2 action
	SeqOffsets Ptr // [S+1] int64: tokens SeqOffsets[s] to SeqOffsets[s+1] are trajectory s
	GroupIDs   Ptr // [S] int32: trajectories sampled from one prompt share a group
	Rewards    Ptr // [S] float32: outcome reward
	SpanIDs    Ptr // [T] int32: response of each token, numbered from 0; -1 outside

	RefEnergy   Ptr // [T] float32: -logsumexp of the frozen reference's logits
	Entropy     Ptr // [T] float32: entropy of the old policy
	OldLogprobs Ptr // [T] float32: log-probability of the sampled token, old policy
	Logprobs    Ptr // [T] float32: the same, current policy
	RefLogprobs Ptr // [T] float32: the same, frozen reference
	RefEntropy  Ptr // [T] float32: entropy of the frozen reference
	Advantages  Ptr // [T] float32
	Values      Ptr // [T] float32: critic
}
