package rollout

import "errors"

var errTorch = errors.New("a pickle that torch.save wrote")
