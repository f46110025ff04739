"""What the launcher asks of this machine: its MPI, cores, GPUs, scheduler.

- `allocation.py`: Are we inside a scheduler's allocation, and how many ranks is it for?.
- `binding.py`: Which cores does each rank get, and how many threads may its libraries start?.
- `cores.py`: Which cores are other jobs on this host bound to? A registry, so that two jobs do not share cores
  unless told.
- `gpus.py`: GPUs of this host: how many processes may use, which one a rank takes, and a word where ranks outnumber
  them.
- `leftovers.py`: Shared memory that a job leaves behind when it is killed: which files in /dev/shm did it make?.
- `mpi_discovery.py`: Which MPI do the ranks load, and which mpiexec belongs to it?.
- `mpi_probe.py`: Run in a process of its own: which MPI library does mpi4py load here?.
- `room.py`: Is there room for that many ranks here? A word where they outnumber the CPUs, an error where MPI cannot
  start them.
"""
