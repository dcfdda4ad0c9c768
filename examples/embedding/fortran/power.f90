! The largest eigenvalue of a symmetric matrix by power iteration, on any device: power DEVICE N STEPS
program power
  use offload_args
  implicit none
  character(64) :: device_name, argument
  integer(c_int64_t) :: n, i, j
  integer :: step, steps
  integer(c_int) :: device
  real(c_double) :: eigenvalue
  real(c_double), allocatable, target :: A(:, :), x(:)
  integer(c_int64_t) :: room(4), rooms(2, 2)
  type(oa_array) :: arrays(3)
  type(c_ptr) :: region

  call get_command_argument(1, device_name)
  call get_command_argument(2, argument); read (argument, *) n
  call get_command_argument(3, argument); read (argument, *) steps
  allocate (A(n, n), x(n))
  x = 1
  do j = 1, n
    do i = 1, n
      A(i, j) = 1 / (1 + abs(real(i - j, c_double)))
    end do
  end do

  arrays(1) = oa_matrix(c_loc(A), OA_F64, n, n, n, room, OA_IN)
  arrays(2) = oa_vector(c_loc(x), OA_F64, n, rooms(:, 1), OA_INOUT)
  arrays(3) = oa_vector(c_null_ptr, OA_F64, n, rooms(:, 2), OA_SCRATCH_CONSTANT)
  call check(oa_check_version(OA_VERSION_CONSTANT))
  call check(oa_device_open(trim(device_name)//c_null_char, device))
  call check(oa_region_enter(device, arrays=arrays, count=3, region=region))
  do step = 1, steps
    call check(oa_blas_dsymv(OA_BLAS_LOWER, n, 1d0, arrays(1)%handle, n, arrays(2)%handle, 1_8, 0d0, &
                             arrays(3)%handle, 1_8))
    call check(oa_blas_dnrm2(n, arrays(3)%handle, 1_8, eigenvalue))
    call check(oa_blas_dcopy(n, arrays(3)%handle, 1_8, arrays(2)%handle, 1_8))
    call check(oa_blas_dscal(n, 1 / eigenvalue, arrays(2)%handle, 1_8))
  end do
  call check(oa_region_finish(region, OA_COMMIT))
  call check(oa_region_wait(region))
  print '(f0.12)', eigenvalue

contains

  subroutine check(status)
    integer(c_int), intent(in) :: status
    if (status == OA_OK) return
    print '(a)', oa_text()
    error stop 1
  end subroutine
end program
