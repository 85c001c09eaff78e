"""Makes the CPU the device that OpenRLHF asks torch.cuda for. OpenRLHF imports flash_attn or vllm before it uses a GPU,
and this folder has both."""

import torch


class Device(str):
    """ "cpu", which is 0 in a name such as f"cuda:{device}"."""

    def __format__(self, spec):
        return "0"


torch.cuda.current_device = lambda: Device("cpu")
for name in ("set_device", "synchronize", "empty_cache", "current_stream"):
    setattr(torch.cuda, name, lambda *args, **options: None)
mesh = torch.distributed.device_mesh.init_device_mesh
torch.distributed.device_mesh.init_device_mesh = lambda kind, *args, **options: mesh("cpu", *args, **options)
