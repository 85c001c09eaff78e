package reweight

import "slices"

// groupIndex holds the distinct group ids of a batch in ascending order. A
// group's number is its place there.
type groupIndex []int32

// groupsOf returns the groups of the batch's trajectories.
func (ws *Workspace) groupsOf(b *Batch) (groupIndex, error) {
	if err := checkLen("GroupIDs", len(b.GroupIDs), b.Trajectories(), "trajectory"); err != nil {
		return nil, err
	}
	groups := take[int32](ws, len(b.GroupIDs))
	copy(groups, b.GroupIDs)
	slices.Sort(groups)
	return slices.Compact(groups), nil
}

// of returns the number of the group of that id.
func (g groupIndex) of(id int32) int {
	i, _ := slices.BinarySearch(g, id)
	return i
}
