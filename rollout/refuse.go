package rollout

import (
	"bytes"
	"errors"
)

// How to get what a file lacks.
const (
	// Who installed the package by pip has no docs folder.
	pageOfFormats = "https://github.com/seed621a2839/reweight/blob/main/docs/formats.md"

	textOnly = ", without token ids, masks and log-probabilities: " + pageOfFormats +
		" has the lines that make the trainer write them"
	asTokens = ", and Python's reweight.rollout.from_text makes tokens of the texts"
	toPython = " could run any program when it is read, and is not read: Python's reweight.rollout converts the pickles of slime and verl (docs/engines.md)"
)

// errTorch is the answer to a zip file that torch.save wrote.
var errTorch = errors.New("a file of torch.save holds a pickle, which" + toPython)

// parquetInPython says how Python converts Parquet.
const parquetInPython = "Parquet, which Python converts. Arrays, as Ray Data writes them: " +
	`python -c "from sys import argv as a; import reweight.rollout as r; r.save('rollouts.npz', r.from_parquet(a[1]))" FILE. ` +
	"Texts, as TRL writes them (log_completions): " +
	`python -c "from sys import argv as a; import transformers as t, reweight.rollout as r; r.save('rollouts.npz', r.from_text(a[1], t.AutoTokenizer.from_pretrained(a[2])))" FILE MODEL. ` +
	"Credit(save_every=50) of a trainer writes log-probabilities too, which texts lack"

// refusedFormats are those that are known, and not read.
var refusedFormats = []format{
	{name: "npy", begins: isNPY, open: refuse("one array alone, want a batch: save all arrays by numpy.savez")},
	{name: "pickle", begins: isPickle, open: refuse("a pickle" + toPython)},
	{name: "Parquet", begins: isParquet, open: refuse(parquetInPython)},
	{name: "verl's texts", fields: isVerlText, open: refuse("texts that verl (trainer.rollout_data_dir) dumps" + textOnly + asTokens)},
	{name: "AReaL's texts", fields: isAReaLText, open: refuse("texts that AReaL (rollout.dump_to_file) dumps" + textOnly)},
}

// refuse returns a format's open, which says why it is not read.
func refuse(why string) func(*stream, string, *Options) (reader, error) {
	return func(_ *stream, name string, _ *Options) (reader, error) { return nil, inContext(name, errors.New(why)) }
}

// isZip reports whether a zip file begins, be it empty.
func isZip(head []byte) bool {
	return bytes.HasPrefix(head, []byte("PK\x03\x04")) || bytes.HasPrefix(head, []byte("PK\x05\x06"))
}

func isNPY(head []byte) bool { return bytes.HasPrefix(head, []byte(npyMagic)) }

// isPickle knows protocols 2 to 5, those that Python 3 writes.
func isPickle(head []byte) bool {
	return len(head) > 1 && head[0] == 0x80 && 2 <= head[1] && head[1] <= 5
}

func isParquet(head []byte) bool { return bytes.HasPrefix(head, []byte("PAR1")) }

func isVerlText(f fields) bool {
	return f.has("input", "output", "score", "step") && !f["token_ids"]
}

func isAReaLText(f fields) bool {
	return f.has("task_id", "sample_idx", "seqlen", "prompt", "completion") && !f["token_ids"]
}
