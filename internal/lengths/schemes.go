package lengths

import "github.com/seed621a2839/reweight"

func ActFocus(weights []float32, b *reweight.Batch, signal reweight.Signal) error {
	lens := [3]length{{"weights", len(weights)}}
	n := 2
	switch signal {
	case reweight.SignalEnergy:
		lens[1] = length{"RefEnergy", len(b.RefEnergy)}
	case reweight.SignalRefEntropy:
		lens[1] = length{"RefEntropy", len(b.RefEntropy)}
	case reweight.SignalSurprisal:
		lens[1] = length{"OldLogprobs", len(b.OldLogprobs)}
	case reweight.SignalLogRatio:
		lens[1], lens[2] = length{"OldLogprobs", len(b.OldLogprobs)}, length{"RefLogprobs", len(b.RefLogprobs)}
		n = 3
	default:
		n = 1 // no signal has that number, which is another error
	}
	return each(b.Tokens(), "token", lens[:n]...)
}

func AEM(factors []float32, b *reweight.Batch, scope reweight.Scope) error {
	if err := each(b.Tokens(), "token", length{"factors", len(factors)}, length{"Entropy", len(b.Entropy)}, length{"SpanIDs", len(b.SpanIDs)}); err != nil {
		return err
	}
	if err := trajectories(b); err != nil {
		return err
	}
	if scope == reweight.ScopeGroup {
		return one("GroupIDs", len(b.GroupIDs), b.Trajectories(), "trajectory")
	}
	return nil
}

func GRPO(advantages []float32, b *reweight.Batch) error {
	if err := one("advantages", len(advantages), b.Tokens(), "token"); err != nil {
		return err
	}
	if err := trajectories(b); err != nil {
		return err
	}
	return each(b.Trajectories(), "trajectory", length{"Rewards", len(b.Rewards)}, length{"GroupIDs", len(b.GroupIDs)})
}

func GAE(advantages, returns, rewards []float32, b *reweight.Batch) error {
	T := b.Tokens()
	if err := one("advantages", len(advantages), T, "token"); err != nil {
		return err
	}
	if returns != nil {
		if err := one("returns", len(returns), T, "token"); err != nil {
			return err
		}
	}
	if err := each(T, "token", length{"rewards", len(rewards)}, length{"Values", len(b.Values)}); err != nil {
		return err
	}
	return trajectories(b)
}

func Whiten(dst, x []float32, role []reweight.Role) error {
	return each(len(role), "token", length{"dst", len(dst)}, length{"x", len(x)})
}

func Loss(grad, weights []float32, b *reweight.Batch, aggregation reweight.Aggregation) error {
	T := b.Tokens()
	err := each(T, "token", length{"grad", len(grad)}, length{"Logprobs", len(b.Logprobs)}, length{"OldLogprobs", len(b.OldLogprobs)}, length{"Advantages", len(b.Advantages)})
	if err != nil {
		return err
	}
	if err := weightsOf(weights, T); err != nil {
		return err
	}
	if len(b.RefLogprobs) != 0 {
		if err := one("RefLogprobs", len(b.RefLogprobs), T, "token"); err != nil {
			return err
		}
	}
	if aggregation != reweight.TokenMean {
		return trajectories(b)
	}
	return nil
}
