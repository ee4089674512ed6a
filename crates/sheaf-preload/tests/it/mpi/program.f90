! Known calls of MPI-IO in Fortran, on four ranks.
program known
#ifdef F08
  use mpi_f08
  implicit none
  type(MPI_File) :: file
  type(MPI_Status) :: status
#else
  use mpi
  implicit none
  integer :: file, status(MPI_STATUS_SIZE)
#endif
  integer, parameter :: n = 256
  integer :: rank, ranks, error, i, data(n), got(n)
  integer(kind=MPI_OFFSET_KIND) :: at
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  data = [(rank * n + i, i = 1, n)]
  call MPI_File_open(MPI_COMM_WORLD, 'fortran  ', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, error)
  call want(error == MPI_SUCCESS, 1)
  at = rank * n * 4
  do i = 1, 10
    call MPI_File_write_at(file, at, data, i, MPI_INTEGER, MPI_STATUS_IGNORE, error)
    call want(error == MPI_SUCCESS, 2)
  end do
  call MPI_File_write_at_all(file, at, data, n, MPI_INTEGER, status, error)
  call want(error == MPI_SUCCESS, 3)
  call MPI_File_sync(file, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  at = 4 * (ranks - rank - 1) * n + 512
  call MPI_File_read_at(file, at, got, n, MPI_INTEGER, status, error)
  call want(error == MPI_SUCCESS, 4)
  call MPI_Get_count(status, MPI_INTEGER, i, error)
  call want(i == merge(n / 2, n, rank == 0), 5)
  at = 0
  call MPI_File_set_view(file, at, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL, error)
  call want(error == MPI_SUCCESS, 6)
  call MPI_File_read_all(file, got, n, MPI_INTEGER, MPI_STATUS_IGNORE, error)
  call want(error == MPI_SUCCESS .and. all(got == [(i, i = 1, n)]), 7)
  call MPI_File_close(file, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  if (rank == 0) call MPI_File_delete('fortran', MPI_INFO_NULL, error)
  call want(error == MPI_SUCCESS, 8)
  if (rank == 0) print *, ranks, 'ranks did it'
  call MPI_Finalize(error)
contains
  subroutine want(is, number)
    logical, intent(in) :: is
    integer, intent(in) :: number
    integer :: ignored
    if (is) return
    print *, 'rank', rank, 'fails at', number
    call MPI_Abort(MPI_COMM_WORLD, number, ignored)
  end subroutine
end program
