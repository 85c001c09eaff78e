package rollout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// A verifiersEpisode is a line of the file traces.jsonl that verifiers writes: an episode with
// the traces of its agents, or one trace alone.
type verifiersEpisode struct {
	added
	records  []*record
	of       []*verifiersTrace // of each record
	alone    verifiersTrace    // of a line without traces
	left     bool              // some traces are left out
	group    string            // group.id
	task     string            // what tells the task from others
	dropped  []string
	warnings []string
}

// A verifiersTrace is a graph of messages. A path from its root to a leaf is what the policy saw.
type verifiersTrace struct {
	nodes     []verifiersNode
	reward    float32
	turns     []float32 // rewards of the messages that were sampled; NaN: none
	agent     string
	id, task  string
	untrained bool
	failed    bool
	seen      bool // there are nodes
}

// A verifiersNode is a message, with the tokens that it adds to those of its parent. Lists of floats
// have an element for each token that was sampled.
type verifiersNode struct {
	parent  int64 // -1: none
	ids     []int32
	mask    []bool
	floats  [len(verifiersFloats)][]float32
	sampled int
	attempt bool    // an attempt to shorten the conversation
	resumed []int64 // such attempts, from which it goes on
}

// verifiersFloats are the lists of a node that arrays are made of, in the order of arrays.
var verifiersFloats = [...]string{"logprobs", "trainer_logprobs", "reference_logprobs", "entropies", "advantages"}

func isVerifiers(f fields) bool { return f.has("traces.nodes.mask") || f.has("nodes.mask", "rewards") }

// parseVerifiers reads an episode. Each of its traces is a trajectory, whose paths are its turns.
func parseVerifiers(s *jsonscan.Scanner, line int) ([]*record, error) {
	v := &verifiersEpisode{}
	if err := s.Object(func(name []byte) error { return v.field(s, name) }); err != nil {
		return nil, err
	}
	if v.alone.seen {
		if err := v.take(&v.alone, ""); err != nil {
			return nil, err
		}
	}
	if v.left {
		v.warnings = append(v.warnings, "Traces are left out: those with an error, of agents that are not trained, and without a sampled token.")
	}
	for i, r := range v.records {
		r.line = line
		of := v.of[i]
		if group := cmp.Or(v.group, of.task, v.task); group != "" {
			r.group = group + "/" + of.agent
		}
		if v.added.group != "" {
			r.group = v.added.group
		}
		if i == 0 {
			r.dropped, r.warnings = v.dropped, v.warnings
		}
	}
	return v.records, v.give(v.records)
}

func (v *verifiersEpisode) field(s *jsonscan.Scanner, name []byte) error {
	switch string(name) {
	case "traces":
		return s.Array(func(i int) error {
			var t verifiersTrace
			if err := s.Object(func(name []byte) error { return v.traceField(s, &t, name) }); err != nil {
				return err
			}
			return v.take(&t, fmt.Sprintf("traces[%d].", i))
		})
	case "group":
		return ifGiven(s, func() error {
			return s.Object(func(name []byte) (err error) {
				if string(name) != "id" {
					return s.Skip()
				}
				v.group, err = readID(s)
				return err
			})
		})
	case "task":
		return readTask(s, &v.task)
	case "reward", "group_id", "trajectory_id":
		_, err := v.added.read(s, name)
		return err
	}
	return v.traceField(s, &v.alone, name)
}

// readTask takes what tells a task from others.
func readTask(s *jsonscan.Scanner, dst *string) error {
	return ifGiven(s, func() error {
		return s.Object(func(name []byte) (err error) {
			if string(name) != "key" && string(name) != "hash" || *dst != "" {
				return s.Skip()
			}
			*dst, err = readID(s)
			return err
		})
	})
}

func (v *verifiersEpisode) traceField(s *jsonscan.Scanner, t *verifiersTrace, name []byte) (err error) {
	switch string(name) {
	case "id":
		t.id, err = readID(s)
		return err
	case "task":
		return readTask(s, &t.task)
	case "ok":
		ok := true
		err = optional(s, &ok, (*jsonscan.Scanner).Bool)
		t.failed = !ok
		return err
	case "agent":
		return ifGiven(s, func() error {
			return s.Object(func(name []byte) (err error) {
				switch string(name) {
				case "name":
					t.agent, err = readID(s)
					return err
				case "trainable":
					trained := true
					err = optional(s, &trained, (*jsonscan.Scanner).Bool)
					t.untrained = !trained
					return err
				}
				return s.Skip()
			})
		})
	case "info":
		return ifGiven(s, func() error {
			return s.Object(func(name []byte) error {
				if string(name) == "turn_rewards" {
					return optional(s, &t.turns, (*jsonscan.Scanner).FloatsOrNull)
				}
				drop(s, &v.dropped, "info.", name)
				return nil
			})
		})
	case "rewards":
		return ifGiven(s, func() error {
			return s.Object(func([]byte) error { return ifGiven(s, func() error { return readReward(s, &t.reward) }) })
		})
	case "nodes":
		t.seen = true
		return s.Array(func(i int) error {
			n := verifiersNode{parent: -1}
			if err := s.Object(func(name []byte) error { return v.nodeField(s, &n, name) }); err != nil {
				return err
			}
			t.nodes = append(t.nodes, n)
			return nil
		})
	}
	drop(s, &v.dropped, "", name)
	return nil
}

// readReward adds a reward to the sum.
func readReward(s *jsonscan.Scanner, sum *float32) error {
	score, weight := float32(0), float32(1)
	err := s.Object(func(name []byte) (err error) {
		switch string(name) {
		case "score":
			score, err = s.Float()
		case "weight":
			err = optional(s, &weight, (*jsonscan.Scanner).Float)
		default:
			err = s.Skip()
		}
		return err
	})
	*sum += float32(score * weight)
	return err
}

func (v *verifiersEpisode) nodeField(s *jsonscan.Scanner, n *verifiersNode, name []byte) (err error) {
	if i := slices.Index(verifiersFloats[:], string(name)); i >= 0 {
		return optional(s, &n.floats[i], (*jsonscan.Scanner).FloatsOrNull)
	}
	switch string(name) {
	case "parent":
		return optional(s, &n.parent, (*jsonscan.Scanner).Int64)
	case "token_ids":
		return optional(s, &n.ids, (*jsonscan.Scanner).Int32s)
	case "mask":
		return optional(s, &n.mask, (*jsonscan.Scanner).Bools)
	case "semantic_parents":
		return ifGiven(s, func() error {
			return s.Array(func(int) error {
				kind, node := "", int64(-1)
				err := s.Object(func(name []byte) (err error) {
					switch string(name) {
					case "type":
						kind, err = readID(s)
					case "node":
						node, err = s.Int64()
					default:
						err = s.Skip()
					}
					return err
				})
				switch kind {
				case "compaction":
					n.resumed = append(n.resumed, node)
				case "compaction_attempt":
					n.attempt = true
				}
				return err
			})
		})
	case "message", "sampled", "timestamp", "is_content", "tools":
		return s.Skip()
	}
	drop(s, &v.dropped, "nodes.", name)
	return nil
}

// take makes records of a trace: one of each path that ends in a leaf. A token counts in the first
// of the paths that have it.
func (v *verifiersEpisode) take(t *verifiersTrace, path string) error {
	parents, resumed := make([]bool, len(t.nodes)), make([]bool, len(t.nodes))
	sampled, responses := 0, 0
	for i := range t.nodes {
		n := &t.nodes[i]
		if n.parent >= int64(i) || n.parent < -1 {
			return fmt.Errorf("%snodes[%d].parent is %d, want one of the nodes before", path, i, n.parent)
		}
		if n.parent >= 0 {
			parents[n.parent] = true
		}
		if len(n.ids) != len(n.mask) {
			return fmt.Errorf("%snodes[%d].token_ids has %d elements, but mask %d", path, i, len(n.ids), len(n.mask))
		}
		for _, response := range n.mask {
			if response {
				n.sampled++
			}
		}
		sampled += n.sampled
		responses += min(n.sampled, 1)
		for f, list := range n.floats {
			if list != nil && len(list) != 0 && len(list) != n.sampled {
				return fmt.Errorf("%snodes[%d].%s has %d elements, but %d tokens of mask were sampled", path, i,
					verifiersFloats[f], len(list), n.sampled)
			}
		}
		for _, node := range n.resumed {
			if node >= 0 && node < int64(len(resumed)) {
				resumed[node] = true
			}
		}
	}
	if t.failed || t.untrained || sampled == 0 {
		v.left = true
		return nil
	}
	if t.turns != nil && len(t.turns) != responses {
		return fmt.Errorf("%sinfo.turn_rewards has %d elements, but %d messages were sampled", path, len(t.turns),
			responses)
	}
	// An array that some sampled node lacks is left out, but for advantages: a node that nobody
	// scored has none.
	var given [len(verifiersFloats)]bool
	for f, name := range verifiersFloats {
		all, some := true, false
		for i := range t.nodes {
			if k := slices.IndexFunc(t.nodes[i].floats[f], func(x float32) bool { return x != x }); k >= 0 {
				return fmt.Errorf("%snodes[%d].%s[%d] is null: the trainer's number was not finite", path, i, name, k)
			}
			has := len(t.nodes[i].floats[f]) != 0
			all, some = all && (has || t.nodes[i].sampled == 0), some || has
		}
		given[f] = all || some && name == "advantages"
		if some && !given[f] {
			v.warnings = append(v.warnings, name+" is not at every sampled message of a trace: it is left out there.")
		}
	}
	counted, turn := make([]bool, len(t.nodes)), make([]int, len(t.nodes)) // turn: sampled messages before
	for i := 1; i < len(t.nodes); i++ {
		turn[i] = turn[i-1] + min(t.nodes[i-1].sampled, 1)
	}
	for leaf := range t.nodes {
		if parents[leaf] || t.nodes[leaf].attempt && !resumed[leaf] {
			continue
		}
		var way []int
		for i := int64(leaf); i >= 0; i = t.nodes[i].parent {
			way = append(way, int(i))
		}
		slices.Reverse(way)
		r := &record{trajectory: t.id}
		r.TokenIDs = []int32{}
		var lists [len(verifiersFloats)][]float32
		for _, i := range way {
			n, at := &t.nodes[i], 0
			for k, response := range n.mask {
				r.TokenIDs, r.mask = append(r.TokenIDs, n.ids[k]), append(r.mask, response && !counted[i])
				for f := range lists {
					if !given[f] {
						continue
					}
					x := float32(0)
					if response && len(n.floats[f]) != 0 {
						x = n.floats[f][at]
					}
					lists[f] = append(lists[f], x)
				}
				if response {
					at++
				}
			}
		}
		for _, i := range way {
			if t.turns != nil && t.nodes[i].sampled > 0 && !counted[i] {
				reward := t.turns[turn[i]]
				if reward != reward { // null
					reward = 0
				}
				r.SpanRewards = append(r.SpanRewards, reward)
			}
			counted[i] = true
		}
		if !slices.Contains(r.mask, true) {
			continue
		}
		r.OldLogprobs, r.Logprobs, r.RefLogprobs = lists[0], lists[1], lists[2]
		r.Entropy, r.Advantages = lists[3], lists[4]
		r.Rewards = []float32{t.reward}
		r.promptIDs = promptOf(r.TokenIDs, r.mask)
		v.records, v.of = append(v.records, r), append(v.of, t)
	}
	return nil
}
