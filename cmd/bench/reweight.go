package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout"
)

const reweightUsage = `Usage: bench reweight [flags] FILE

Reads packed rollouts from a safetensors file and prints the loss under uniform
weights, ActFocus, AEM and both, with GRPO advantages from rewards and group_ids.
The file holds role, seq_offsets, group_ids, rewards and span_ids, and either
ref_energy, entropy, old_logprobs and logprobs or the logits they follow from:
ref_logits, old_logits and logits, with token_ids.

`

// choice is a flag that takes one of some names, numbered from 0.
type choice[E ~uint8] struct {
	value *E
	names []string
}

func (c choice[E]) String() string {
	if c.value == nil {
		return ""
	}
	return c.names[*c.value]
}

func (c choice[E]) Set(name string) error {
	i := slices.Index(c.names, name)
	if i < 0 {
		return fmt.Errorf("want one of %s", strings.Join(c.names, ", "))
	}
	*c.value = E(i)
	return nil
}

func reweightCommand(args []string, out io.Writer, compute library) error {
	flags := flag.NewFlagSet("bench reweight", flag.ContinueOnError)
	opt := defaultOptions()
	flags.Float64Var(&opt.actFocus.Alpha, "alpha", opt.actFocus.Alpha, "ActFocus: weight of reasoning tokens, 0 to 1")
	flags.Float64Var(&opt.actFocus.Beta, "beta", opt.actFocus.Beta, "ActFocus: strength of the signal at action tokens, at least 0")
	flags.Float64Var(&opt.actFocus.Eps, "eps", opt.actFocus.Eps, "ActFocus: added to the signal's variance, at least 0")
	flags.Var(choice[reweight.Signal]{&opt.actFocus.Signal, []string{"energy", "reference-entropy", "surprisal", "log-ratio"}},
		"signal", "ActFocus: `name` of the signal: energy, reference-entropy (ref_entropy or ref_logits), surprisal or log-ratio")
	flags.Float64Var(&opt.aem.Lambda, "lambda", opt.aem.Lambda, "AEM: strength, 0 to 80")
	flags.Float64Var(&opt.aem.Guard, "guard", opt.aem.Guard, "AEM: `nats` by which the responses of a scope must differ, at least 0")
	flags.Var(choice[reweight.Scope]{&opt.aem.Scope, []string{"group", "trajectory", "batch"}},
		"scope", "AEM: `name` of the scope that responses are compared in: group, trajectory or batch")
	flags.Float64Var(&opt.loss.ClipLow, "clip-low", opt.loss.ClipLow, "loss: the ratio is clipped below 1 minus this, 0 to 1")
	flags.Float64Var(&opt.loss.ClipHigh, "clip-high", opt.loss.ClipHigh, "loss: the ratio is clipped above 1 plus this, at least 0")
	flags.Float64Var(&opt.loss.DualClip, "dual-clip", opt.loss.DualClip, "loss: bound of the ratio where the advantage is negative, above 1; 0 for none")
	flags.Var(choice[reweight.Aggregation]{&opt.loss.Aggregation, []string{"token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"}},
		"aggregation", "loss: `name` of the aggregation: token-mean, seq-mean-token-sum, seq-mean-token-mean or seq-mean-token-sum-norm")
	flags.IntVar(&opt.loss.NormLength, "norm-length", opt.loss.NormLength, "loss: `tokens` that seq-mean-token-sum-norm divides by; 0 for those of the longest trajectory")
	flags.BoolVar(&opt.grpo.DivideByStd, "divide-by-std", opt.grpo.DivideByStd, "GRPO: divide by the group's standard deviation; =false is Dr. GRPO")
	asJSON := flags.Bool("json", false, "print JSON")
	output := flags.String("o", "", "write weights, advantages and grad_logprobs of ActFocus with AEM, F32 [T], to this safetensors `file`")
	operands, err := parse(flags, reweightUsage, args, out)
	if err != nil {
		return err
	}
	if len(operands) == 0 {
		return errors.New("no FILE given")
	}
	if err := noOperands(operands[1:]); err != nil {
		return err
	}
	if err := opt.check(); err != nil {
		return err
	}

	path := operands[0]
	if err := checkOutput(*output, path); err != nil {
		return err
	}
	file, err := rollout.Open(path)
	if err != nil {
		return trimmed(err)
	}
	defer file.Close()
	b, err := file.Batch()
	if err != nil {
		return trimmed(err)
	}
	s, err := summariseFile(b, opt, compute)
	if err != nil {
		return fmt.Errorf("%s: %w", path, inTensors(err))
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
			return trimmed(err)
		}
	}
	if *asJSON {
		err = printJSON(out, s)
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
		if b.RefEntropy == nil && b.RefLogits.Rows() == 0 {
			return nil, errors.New(`rollout: no "ref_entropy" and no "ref_logits" to derive it from`)
		}
	case reweight.SignalLogRatio:
		need = append(need, "ref_logprobs")
	}
	if err := rollout.Require(b, need...); err != nil {
		return nil, err
	}
	var ws reweight.Workspace
	if err := rollout.Derive(&ws, b); err != nil {
		return nil, err
	}
	refEntropy := b.RefEntropy
	if opt.actFocus.Signal == reweight.SignalRefEntropy && refEntropy == nil {
		refEntropy = make([]float32, b.Tokens())
		if err := ws.TokenStats(reweight.Stats{Entropy: refEntropy}, b.RefLogits, nil, reweight.DefaultTokenStats); err != nil {
			return nil, err
		}
	}
	for t, role := range b.Role {
		if role == reweight.RoleMasked {
			continue
		}
		if b.OldLogprobs[t] != b.OldLogprobs[t] {
			return nil, fmt.Errorf("OldLogprobs[%d] = NaN at a response token", t)
		}
		if b.Logprobs[t] != b.Logprobs[t] {
			return nil, fmt.Errorf("Logprobs[%d] = NaN at a response token", t)
		}
	}
	return summarise(b, refEntropy, opt, compute)
}

// check returns an error that names the flag whose value is out of range: the
// one that the library gives for a good batch of one token.
func (opt options) check() error {
	one := []float32{0}
	_, err := compute(&reweight.Batch{
		Role: []uint8{reweight.RoleAction}, SeqOffsets: []int64{0, 1}, GroupIDs: []int32{0}, Rewards: one, SpanIDs: []int32{0},
		RefEnergy: one, Entropy: one, OldLogprobs: one, Logprobs: one, RefLogprobs: one,
	}, one, opt)
	if err == nil {
		return nil
	}
	return errors.New(strings.NewReplacer("reweight: ", "", "Alpha", "-alpha", "Beta", "-beta", "Eps", "-eps", "Lambda", "-lambda",
		"Guard", "-guard", "ClipLow", "-clip-low", "ClipHigh", "-clip-high", "DualClip", "-dual-clip", "NormLength", "-norm-length").Replace(err.Error()))
}

// trimmed leaves out which package of the library speaks.
func trimmed(err error) error {
	return errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "rollout: "), "reweight: "))
}

// inTensors calls the fields of a batch by their tensors' names.
func inTensors(err error) error {
	return errors.New(strings.NewReplacer("GroupIDs", "group_ids", "Rewards", "rewards", "SpanIDs", "span_ids", "RefEnergy", "ref_energy",
		"Entropy", "entropy", "OldLogprobs", "old_logprobs", "RefLogprobs", "ref_logprobs", "Logprobs", "logprobs").Replace(trimmed(err).Error()))
}

// checkOutput refuses what writing the file would destroy: a rename puts it in
// the place of whatever has its name, be it the input or a device.
func checkOutput(output, input string) error {
	old, err := os.Lstat(output)
	if output == "" || err != nil {
		return nil // nothing is there
	}
	if !old.Mode().IsRegular() {
		return fmt.Errorf("-o %s: not a regular file", output)
	}
	if in, err := os.Stat(input); err == nil && os.SameFile(old, in) {
		return fmt.Errorf("-o %s is the input file, which would be lost", output)
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}
