package gpu

import (
	"cmp"

	"github.com/seed621a2839/reweight"
)

// aemParams are those of the kernels of aem.cu.
type aemParams struct {
	layout                              layoutParams
	factors, entropy, spanIDs, groupIDs Ptr
	lambda, guard                       float64
	scope                               int64
	mostSpans                           int64

	// Scratch.
	values                                      Ptr // [Tokens]
	tops, firsts, counts, scopes, places, sizes Ptr // [Trajectories]
	responses, ends, spots, means, sorted       Ptr // [Spans]
}

// place says where the scratch is.
func (p *aemParams) place(l *layout, size Size) {
	p.values = l.take(4 * size.Tokens)
	for _, q := range [...]*Ptr{&p.tops, &p.firsts, &p.counts, &p.scopes, &p.places, &p.sizes} {
		*q = l.take(4 * size.Trajectories)
	}
	for _, q := range [...]*Ptr{&p.responses, &p.ends, &p.spots, &p.means, &p.sorted} {
		*q = l.take(4 * size.Spans)
	}
}

// AEM sets factors[t] to the number that the advantage of token t is to be multiplied
// by (arXiv 2605.00425). It reads Role, SeqOffsets, SpanIDs and Entropy, and for
// ScopeGroup GroupIDs. factors has one element per token, and may be Entropy. If
// something is wrong on the device, all factors are NaN.
//
// The workspace must be made for the batch, with Size.Spans for its spans, which only
// the device can count. It holds 4 bytes of scratch for each token, 24 for each
// trajectory and 20 for each span.
//
// The work grows with the square of the number of trajectories, because each looks for
// those of its scope among all, 32 at a time. For 65,536 trajectories these are 134
// million steps of a warp, of about 14 instructions each; for a thousand they are
// 32 thousand.
func (ws *Workspace) AEM(factors Ptr, b *Batch, opt reweight.AEMOptions) error {
	err := cmp.Or(
		ws.cpu.AEM(nil, &nothing, opt),
		ws.checkBatch(b, array{"factors", factors, 4}, array{"Entropy", b.Entropy, 4}, array{"SpanIDs", b.SpanIDs, 4}),
	)
	if err == nil && opt.Scope == reweight.ScopeGroup {
		err = checkPtr("GroupIDs", b.GroupIDs, 4)
	}
	if err != nil {
		return err
	}
	p := &ws.params.aem
	p.factors, p.entropy, p.spanIDs, p.groupIDs = factors, b.Entropy, b.SpanIDs, b.GroupIDs
	p.lambda, p.guard, p.scope, p.mostSpans = opt.Lambda, opt.Guard, int64(opt.Scope), int64(ws.size.Spans)
	if err := ws.startBatch(&p.layout, b); err != nil {
		return err
	}
	return launch(ws, p,
		step{"aem_tops", perWarp(b.Trajectories)},
		step{"aem_spans", perWarp(b.Trajectories)},
		step{"aem_sort", perWarp(b.Trajectories)},
		step{"aem_scopes", b.Trajectories},
		step{"aem_factors", perThread(b.Tokens, 256)})
}
