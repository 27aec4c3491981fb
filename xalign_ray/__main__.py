"""`python -m xalign_ray` is the command `xalign`, for launchers that start modules: `torchrun -m xalign_ray ...`."""

from xalign_ray.cli import main

if __name__ == "__main__":
    main()
