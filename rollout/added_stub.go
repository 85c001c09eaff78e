package rollout

import (
	"fmt"

	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// Added are the fields that people may add to a line.
type added struct {
	rewards           []float32
	group, trajectory string
}

// read reads the field of that name, if it is one of them.
func (a *added) read(s *jsonscan.Scanner, name []byte) (known bool, err error) {
	switch string(name) {
	case "reward", "rewards":
		switch s.Kind() {
		case jsonscan.Null:
		case jsonscan.Array:
			a.rewards, err = s.Floats(nil)
		default:
			var reward float32
			reward, err = s.Float()
			a.rewards = []float32{reward}
		}
	case "group_id":
		a.group, err = textOrNumber(s)
	case "trajectory_id":
		a.trajectory, err = textOrNumber(s)
	default:
		return false, nil
	}
	return true, err
}

// give sets what a says about the generations of one line, and about their records.
func (a *added) give(records []*record) error {
	if a.trajectory != "" && len(records) > 1 {
		return fmt.Errorf("trajectory_id is %s, but there are %d responses, and a turn of a trajectory has one", printable.Text(a.trajectory), len(records))
	}
	if a.rewards != nil && len(a.rewards) != len(records) {
		return fmt.Errorf("there are %d rewards for %d responses, want one for each", len(a.rewards), len(records))
	}
	for i, r := range records {
		if a.trajectory != "" {
			r.trajectory = a.trajectory
		}
		if a.group != "" {
			r.group = a.group
		}
		if a.rewards != nil {
			r.Rewards = a.rewards[i : i+1 : i+1]
		}
	}
	return nil
}

// textOrNumber reads an id, which may be null.
func textOrNumber(s *jsonscan.Scanner) (string, error) {
	switch s.Kind() {
	case jsonscan.Null:
		return "", s.Skip()
	case jsonscan.Number:
		raw, err := s.Raw()
		return string(raw), err
	}
	return s.String()
}

// ifGiven calls read unless the value is null.
func ifGiven(s *jsonscan.Scanner, read func() error) error {
	if s.Kind() == jsonscan.Null {
		return s.Skip()
	}
	return read()
}
