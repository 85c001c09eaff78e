package study

import (
	"bytes"
	"fmt"

	"github.com/seed621a2839/reweight/studies/learn/train"
)

// PostHoc returns the runs that were done after the map was seen: ActFocus in the cell without any reasoning, at the
// rate of uniform weights, which the median of the runs that choose would have chosen, and the map's uniform runs.
func PostHoc() (runs []train.Run) {
	for _, seed := range TheMap.Seeds {
		for _, scheme := range []string{Uniform, "actfocus"} {
			run := atRate(cell(0, 0), 1e-2)
			run.Scheme, run.Seed = scheme, seed
			runs = append(runs, run)
		}
	}
	return runs
}

// AEMIdle trains once in each cell of the map with AEM, and returns lines with the share of groups that it left alone.
func (m Map) AEMIdle(settings train.Settings, done Table) ([]byte, error) {
	b := bytes.NewBufferString("fluent,errors,rate,seed,idle\n")
	starts := train.Starts{Settings: settings}
	for _, run := range m.Comparing(done) {
		if run.Seed != m.Seeds[0] || run.Scheme != "aem" {
			continue
		}
		warm, err := starts.For(run)
		if err != nil {
			return nil, err
		}
		idle, err := settings.AEMIdle(run, warm)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(b, "%d,%s,%s,%d,%s\n", run.Fluent, digits(run.Errors), digits(run.Rate), run.Seed, digits(idle))
	}
	return b.Bytes(), nil
}
