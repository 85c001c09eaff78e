package train

import "github.com/seed621a2839/reweight"

// A Scheme gives the tokens of a batch their credit. It is given the batch with
// the advantages of GRPO or of GAE in b.Advantages, and may change those. It returns
// the weights of the tokens in the loss, nil if all are 1. It may write the weights to
// memory, which has an element a token and holds what an earlier call left, and return
// that.
type Scheme struct {
	Name   string
	Credit func(ws *reweight.Workspace, b *reweight.Batch, memory []float32) (weights []float32, err error)
	Loss   reweight.LossOptions
}

// Schemes are those that can be compared. The first one is what the others are
// compared with. The study compares the first four; those after them are made for
// GRPO. Each has the constants of its paper. A new one goes to the end; package report
// has a style for each in the same order, which says how it is named and drawn.
var Schemes = []Scheme{
	{"uniform", uniform, reweight.DefaultLoss},
	{"actfocus", actFocus, reweight.DefaultLoss},
	{"aem", aem, reweight.DefaultLoss},
	{"actfocus+aem", both, reweight.DefaultLoss},

	{"empg", empg, reweight.DefaultLoss},
	{"gtpo", gtpo, reweight.DefaultLoss},
	{"entropy-mask", entropyMask, reweight.DefaultLoss},
	{"gspo", uniform, reweight.DefaultGSPO},
	{"cispo", uniform, reweight.DefaultCISPO},
	{"sapo", uniform, reweight.DefaultSAPO},
	{"dppo-tv", uniform, reweight.DefaultDPPOTV},
}

func uniform(*reweight.Workspace, *reweight.Batch, []float32) ([]float32, error) { return nil, nil }

func actFocus(ws *reweight.Workspace, b *reweight.Batch, memory []float32) ([]float32, error) {
	_, err := ws.ActFocus(memory, b, reweight.DefaultActFocus)
	return memory, err
}

func aem(ws *reweight.Workspace, b *reweight.Batch, memory []float32) ([]float32, error) {
	if err := ws.AEM(memory, b, reweight.DefaultAEM); err != nil {
		return nil, err
	}
	return nil, ws.Multiply(b.Advantages, b.Advantages, memory)
}

func both(ws *reweight.Workspace, b *reweight.Batch, memory []float32) ([]float32, error) {
	if _, err := aem(ws, b, memory); err != nil {
		return nil, err
	}
	return actFocus(ws, b, memory)
}

func empg(ws *reweight.Workspace, b *reweight.Batch, _ []float32) ([]float32, error) {
	return nil, ws.EMPG(b.Advantages, b, reweight.DefaultEMPG)
}

func gtpo(ws *reweight.Workspace, b *reweight.Batch, _ []float32) ([]float32, error) {
	return nil, ws.GTPO(b.Advantages, b, reweight.DefaultGTPO)
}

func entropyMask(ws *reweight.Workspace, b *reweight.Batch, memory []float32) ([]float32, error) {
	_, err := ws.EntropyMask(memory, b, reweight.DefaultEntropyMask)
	return memory, err
}
