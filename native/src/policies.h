/* What is true of each policy loss: `go generate ./...` writes this file. zero_clips is the problem of
 * clips that are both 0, or 0 where the policy has none. */
static const struct policy_traits {
	int32_t zero_clips;
	uint8_t by_sequence, spans, chooses, unweighted;
} rw_policies[] = {
	[REWEIGHT_POLICY_PPO] = {REWEIGHT_PROBLEM_ZERO_LOSS, 0, 0, 0, 0},
	[REWEIGHT_POLICY_GSPO] = {REWEIGHT_PROBLEM_ZERO_GSPO, 1, 1, 0, 0},
	[REWEIGHT_POLICY_GRPO_S] = {REWEIGHT_PROBLEM_ZERO_GRPO_S_LOSS, 1, 1, 0, 0},
	[REWEIGHT_POLICY_CISPO] = {REWEIGHT_PROBLEM_ZERO_CISPO, 0, 0, 0, 0},
	[REWEIGHT_POLICY_SAPO] = {0, 0, 0, 0, 0},
	[REWEIGHT_POLICY_PG] = {0, 0, 0, 0, 0},
	[REWEIGHT_POLICY_DPPO_TV] = {REWEIGHT_PROBLEM_ZERO_DPPO_TV, 0, 0, 0, 0},
	[REWEIGHT_POLICY_VESPO] = {0, 1, 0, 0, 0},
	[REWEIGHT_POLICY_DPPO_KL] = {REWEIGHT_PROBLEM_ZERO_DPPO_KL, 0, 0, 0, 0},
	[REWEIGHT_POLICY_DRO] = {0, 0, 0, 0, 1},
	[REWEIGHT_POLICY_GMPO] = {REWEIGHT_PROBLEM_ZERO_GMPO, 1, 0, 0, 1},
	[REWEIGHT_POLICY_CLIP_COV] = {REWEIGHT_PROBLEM_ZERO_CLIP_COV, 0, 0, 1, 1},
	[REWEIGHT_POLICY_KL_COV] = {0, 0, 0, 1, 1},
};
