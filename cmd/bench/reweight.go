package main

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/rollout"
)

const reweightUsage = `Usage: bench reweight [flags] FILE

Reads packed rollouts from a safetensors file and prints the loss under uniform
weights, ActFocus, AEM and both, with GRPO advantages from rewards and group_ids.
The file holds role, seq_offsets, group_ids, rewards and span_ids, and either
ref_energy, entropy, old_logprobs and logprobs or the logits they follow from:
ref_logits, old_logits and logits, with token_ids.

`

func reweightCommand(args []string, out io.Writer, compute library) error {
	opt := defaultOptions()
	flags := cli.NewFlags("bench reweight")
	flags.Float64Var(&opt.actFocus.Alpha, "alpha", opt.actFocus.Alpha, "ActFocus: weight of reasoning tokens, 0 to 1")
	flags.Float64Var(&opt.actFocus.Beta, "beta", opt.actFocus.Beta, "ActFocus: strength of the signal at action tokens, at least 0")
	flags.Float64Var(&opt.actFocus.Eps, "eps", opt.actFocus.Eps, "ActFocus: added to the signal's variance, at least 0")
	signal := flags.String("signal", opt.actFocus.Signal.String(), "ActFocus: `name` of the signal: energy, ref_entropy, surprisal or log_ratio")
	flags.Float64Var(&opt.aem.Lambda, "lambda", opt.aem.Lambda, "AEM: strength, 0 to 80")
	flags.Float64Var(&opt.aem.Guard, "guard", opt.aem.Guard, "AEM: `nats` by which the responses of a scope must differ, at least 0")
	scope := flags.String("scope", opt.aem.Scope.String(), "AEM: `name` of the scope that responses are compared in: group, trajectory or batch")
	flags.Float64Var(&opt.loss.ClipLow, "clip-low", opt.loss.ClipLow, "loss: the ratio is clipped below 1 minus this, 0 to 1")
	flags.Float64Var(&opt.loss.ClipHigh, "clip-high", opt.loss.ClipHigh, "loss: the ratio is clipped above 1 plus this, at least 0")
	flags.Float64Var(&opt.loss.DualClip, "dual-clip", opt.loss.DualClip, "loss: bound of the ratio where the advantage is negative, above 1; 0 for none")
	aggregation := flags.String("aggregation", opt.loss.Aggregation.String(), "loss: `name` of the aggregation: token_mean, seq_mean_token_sum, seq_mean_token_mean or seq_mean_token_sum_norm")
	flags.IntVar(&opt.loss.NormLength, "norm-length", opt.loss.NormLength, "loss: `tokens` that seq_mean_token_sum_norm divides by; 0 for those of the longest trajectory")
	flags.BoolVar(&opt.grpo.DivideByStd, "divide-by-std", opt.grpo.DivideByStd, "GRPO: divide by the group's standard deviation; =false is Dr. GRPO")
	format := flags.Format(cli.Table, cli.JSON)
	output := flags.String("o", "", "write weights, advantages and grad_logprobs of ActFocus with AEM, F32 [T], to this safetensors `file`")
	operands, err := flags.Parse(reweightUsage, args, out)
	if err != nil {
		return err
	}
	if len(operands) == 0 {
		return errors.New("no FILE given")
	}
	if len(operands) > 1 {
		return cli.Unexpected(operands[1])
	}
	as, err := format()
	if err != nil {
		return err
	}
	for _, name := range [...]struct {
		value encoding.TextUnmarshaler
		text  string
	}{{&opt.actFocus.Signal, *signal}, {&opt.aem.Scope, *scope}, {&opt.loss.Aggregation, *aggregation}} {
		if err := name.value.UnmarshalText([]byte(name.text)); err != nil {
			return cli.Named(err, flagNames)
		}
	}
	if err := opt.check(); err != nil {
		return err
	}

	path := operands[0]
	if err := flags.NotEmpty("o"); err != nil {
		return err
	}
	if *output != "" { // before the work
		if err := checkOutput(*output, path); err != nil {
			return fmt.Errorf("-o: %w", err)
		}
	}
	file, err := rollout.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	b, err := file.Batch()
	if err != nil {
		return err
	}
	s, err := summariseFile(b, opt, compute)
	if err != nil {
		return fmt.Errorf("%s: %w", path, cli.Named(err, cli.ArrayNames()))
	}
	s.File = path
	if *output != "" && s.agreement.failure == "" {
		both := s.kernels.steps[len(lossNames)-1]
		shape := []int64{int64(b.Tokens())}
		err := rollout.Write(*output, []rollout.Tensor{
			{Name: "weights", Shape: shape, Data: s.kernels.weights},
			{Name: "advantages", Shape: shape, Data: both.advantages},
			{Name: "grad_logprobs", Shape: shape, Data: both.grad},
		}, nil)
		if err != nil {
			return err
		}
	}
	if as == cli.JSON {
		err = cli.WriteJSON(out, s)
	} else {
		err = s.print(out)
	}
	if err == nil {
		err = s.agreement.err()
	}
	return err
}

// summariseFile derives what a file's batch lacks, and says which tensor is at
// fault if something is.
func summariseFile(b *reweight.Batch, opt options, compute library) (*summary, error) {
	need := []string{"group_ids", "rewards", "span_ids", "entropy", "old_logprobs", "logprobs"}
	switch opt.actFocus.Signal {
	case reweight.SignalEnergy:
		need = append(need, "ref_energy")
	case reweight.SignalRefEntropy:
		need = append(need, "ref_entropy")
	case reweight.SignalLogRatio:
		need = append(need, "ref_logprobs")
	}
	if err := rollout.Require(b, need...); err != nil {
		return nil, err
	}
	var ws reweight.Workspace
	// The bottleneck wants the energy whatever the signal is.
	if err := rollout.Derive(&ws, b, append(need, "ref_energy")...); err != nil {
		return nil, err
	}
	for t, role := range b.Role {
		if role == reweight.RoleMasked {
			continue
		}
		if b.OldLogprobs[t] != b.OldLogprobs[t] {
			return nil, fmt.Errorf("old_logprobs[%d] is NaN at a response token", t)
		}
		if b.Logprobs[t] != b.Logprobs[t] {
			return nil, fmt.Errorf("logprobs[%d] is NaN at a response token", t)
		}
	}
	return summarise(b, opt, compute)
}

// check returns an error that names the flag whose value is out of range: the
// one that the library gives for a good batch of one token.
func (opt options) check() error {
	one := []float32{0}
	_, err := compute(&reweight.Batch{
		Role: []reweight.Role{reweight.RoleAction}, SeqOffsets: []int64{0, 1}, GroupIDs: []int32{0}, Rewards: one, SpanIDs: []int32{0},
		RefEnergy: one, RefEntropy: one, Entropy: one, OldLogprobs: one, Logprobs: one, RefLogprobs: one,
	}, opt)
	return cli.Named(err, flagNames)
}

// flagNames are the flags that set the options of these names.
var flagNames = map[string]string{
	"Alpha": "-alpha", "Beta": "-beta", "Eps": "-eps", "Signal": "-signal", "Lambda": "-lambda", "Guard": "-guard", "Scope": "-scope",
	"ClipLow": "-clip-low", "ClipHigh": "-clip-high", "DualClip": "-dual-clip", "Aggregation": "-aggregation", "NormLength": "-norm-length",
}

// checkOutput returns an error if the file cannot be written, or is the input,
// which would be lost.
func checkOutput(output, input string) error {
	if err := atomicfile.Check(output); err != nil {
		return err
	}
	old, err := os.Stat(output)
	if err != nil {
		return nil // there is nothing yet
	}
	if in, err := os.Stat(input); err == nil && os.SameFile(old, in) {
		return fmt.Errorf("%s is the input file, which would be lost", output)
	}
	return nil
}
