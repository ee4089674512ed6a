/* Known calls of MPI-IO on four ranks. Where a line ends with a number that is what each rank moves.
   FEW leaves out what hangs or fails in the OMPIO of some releases of Open MPI, whoever watches. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define WANT(x) do { int e_ = (x); if (e_ != MPI_SUCCESS) { printf("%s: %d\n", #x, e_); MPI_Abort(MPI_COMM_WORLD, 9); } } while (0)
#define N 256
static void check(int rank, const int *got, int first, int count) {
    for (int i = 0; i < count; i++)
        if (got[i] != first + i) { printf("rank %d: %d is %d\n", rank, i, got[i]); MPI_Abort(MPI_COMM_WORLD, 8); }
}
int work(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size, count, data[N], got[N];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < N; i++) data[i] = rank * N + i;
    MPI_File file, other;
    MPI_Status status;
    MPI_Request request;
    MPI_Offset end;
    WANT(MPI_File_open(MPI_COMM_WORLD, "data", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    WANT(MPI_File_preallocate(file, 4096));
    for (int i = 0; i < 10; i++)
        WANT(MPI_File_write_at(file, rank * N * 4 + i * 4, data + i, 1, MPI_INT, MPI_STATUS_IGNORE)); /* 40 */
    WANT(MPI_File_write_at_all(file, rank * N * 4, data, N, MPI_INT, &status)); /* 1024 */
    MPI_Get_count(&status, MPI_INT, &count);
    WANT(count == N ? MPI_SUCCESS : 1);
    WANT(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    WANT(MPI_File_get_size(file, &end));
    WANT(end == 4096 ? MPI_SUCCESS : 1);
    /* The last rank's read meets the end: half of it is there. */
    WANT(MPI_File_read_at(file, rank * N * 4 + 512, got, N, MPI_INT, &status)); /* 1024, 512 on the last */
    MPI_Get_count(&status, MPI_INT, &count);
    check(rank, got, rank * N + N / 2, rank == size - 1 ? N / 2 : N);
    WANT(count == (rank == size - 1 ? N / 2 : N) ? MPI_SUCCESS : 1);
    WANT(MPI_File_read_at_all(file, rank * N * 4, got, N, MPI_INT, MPI_STATUS_IGNORE)); /* 1024 */
    check(rank, got, rank * N, N);

    WANT(MPI_File_set_view(file, 16, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    WANT(MPI_File_seek(file, rank * 4, MPI_SEEK_SET));
    WANT(MPI_File_read(file, got, 4, MPI_INT, &status)); /* 16 */
    check(rank, got, 4 + rank * 4, 4);
    WANT(MPI_File_read_at(file, 10, got, 8, MPI_BYTE, MPI_STATUS_IGNORE)); /* 8, at 56 */
    WANT(MPI_File_read_all(file, got, 2, MPI_INT, MPI_STATUS_IGNORE)); /* 8 */
    WANT(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));

    MPI_Datatype column;
    MPI_Type_vector(4, 1, 2, MPI_INT, &column);
    MPI_Type_commit(&column);
    int columns[16] = {0};
    WANT(MPI_File_read_at(file, 0, columns, 2, column, &status)); /* 32 */
    MPI_Type_free(&column);

    WANT(MPI_File_iwrite_at(file, rank * N * 4, data, N, MPI_INT, &request)); /* asks for 1024 */
    WANT(MPI_Wait(&request, &status));
    WANT(MPI_File_iread_at(file, rank * N * 4, got, N, MPI_INT, &request)); /* asks for 1024 */
    WANT(MPI_Wait(&request, &status));
    check(rank, got, rank * N, N);
    WANT(MPI_File_write_at_all_begin(file, rank * N * 4, data, N / 2, MPI_INT)); /* asks for 512 */
    WANT(MPI_File_write_at_all_end(file, data, MPI_STATUS_IGNORE)); /* 512 */
    WANT(MPI_File_read_at_all_begin(file, rank * N * 4, got, N / 4, MPI_INT)); /* asks for 256 */
    WANT(MPI_File_read_at_all_end(file, got, &status)); /* 256 */
    MPI_Get_count(&status, MPI_INT, &count);
    WANT(count == N / 4 ? MPI_SUCCESS : 1);
#ifdef LARGE
    WANT(MPI_File_write_at_c(file, rank * N * 4, data, (MPI_Count)N, MPI_INT, MPI_STATUS_IGNORE)); /* 1024 */
#endif
#ifndef FEW
    WANT(MPI_File_set_size(file, 2048));
#endif
    WANT(MPI_File_close(&file));
    if (MPI_File_open(MPI_COMM_SELF, "nothing/there", MPI_MODE_RDONLY, MPI_INFO_NULL, &other) == MPI_SUCCESS) return 7;
    WANT(MPI_File_open(MPI_COMM_WORLD, "shared", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &other));
#ifndef FEW
    WANT(MPI_File_write_ordered(other, data, N, MPI_INT, MPI_STATUS_IGNORE)); /* 1024 */
    WANT(MPI_File_seek_shared(other, 0, MPI_SEEK_SET));
    WANT(MPI_File_read_shared(other, got, 25, MPI_INT, &status)); /* 100 */
#endif
    WANT(MPI_File_close(&other));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) WANT(MPI_File_delete("shared", MPI_INFO_NULL));
    if (rank == 0) printf("%d ranks did it\n", size);
    MPI_Finalize();
    return 0;
}
#ifndef LIBRARY
int main(int argc, char **argv) { return work(argc, argv); }
#endif
