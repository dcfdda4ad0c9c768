! The largest eigenvalue of a symmetric matrix by power iteration, on any device: power DEVICE N STEPS
module offload_args
  use, intrinsic :: iso_c_binding
  implicit none
  integer(c_int), parameter :: OA_F64 = 13, OA_IN = 1, OA_INOUT = 3, OA_SCRATCH = 4, OA_COMMIT = 0, OA_DISCARD = 1
  integer(c_int), parameter :: OA_BLAS_LOWER = 122

  type, bind(c) :: oa_array
    type(c_ptr) :: data = c_null_ptr, shape = c_null_ptr, strides = c_null_ptr, name = c_null_ptr
    integer(c_int32_t) :: ndim = 0, dtype = OA_F64, direction = 0, flags = 0
    type(c_ptr) :: handle = c_null_ptr
    integer(c_int32_t) :: packed = 0
    type(c_ptr) :: owner = c_null_ptr
  end type

  interface
    integer(c_int) function oa_device_open(name, device) bind(c)
      import; character(c_char), intent(in) :: name(*); integer(c_int), intent(out) :: device
    end function
    integer(c_int) function oa_region_enter(device, options, arrays, count, region) bind(c)
      import; integer(c_int), value :: device, count; type(c_ptr), value :: options
      type(oa_array), intent(inout) :: arrays(*); type(c_ptr), intent(out) :: region
    end function
    integer(c_int) function oa_region_finish(region, outcome, warnings) bind(c)
      import; type(c_ptr), value :: region, warnings; integer(c_int), value :: outcome
    end function
    integer(c_int) function oa_region_wait(region) bind(c)
      import; type(c_ptr), value :: region
    end function
    type(c_ptr) function oa_last_error() bind(c)
      import
    end function
    integer(c_size_t) function strlen(text) bind(c)
      import; type(c_ptr), value :: text
    end function
    integer(c_int) function oa_blas_dsymv(uplo, n, alpha, A, lda, x, incx, beta, y, incy) bind(c)
      import; integer(c_int), value :: uplo; integer(c_int64_t), value :: n, lda, incx, incy
      real(c_double), value :: alpha, beta; type(c_ptr), value :: A, x, y
    end function
    integer(c_int) function oa_blas_dnrm2(n, x, incx, result) bind(c)
      import; integer(c_int64_t), value :: n, incx; type(c_ptr), value :: x; real(c_double), intent(out) :: result
    end function
    integer(c_int) function oa_blas_dcopy(n, x, incx, y, incy) bind(c)
      import; integer(c_int64_t), value :: n, incx, incy; type(c_ptr), value :: x, y
    end function
    integer(c_int) function oa_blas_dscal(n, alpha, x, incx) bind(c)
      import; integer(c_int64_t), value :: n, incx; real(c_double), value :: alpha; type(c_ptr), value :: x
    end function
  end interface

contains

  subroutine check(status)
    integer(c_int), intent(in) :: status
    type(c_ptr) :: text
    character(c_char), pointer :: letters(:)
    if (status == 0) return
    text = oa_last_error()
    call c_f_pointer(text, letters, [strlen(text)])
    write (*, *) letters
    error stop 1
  end subroutine
end module

program power
  use offload_args
  implicit none
  character(64) :: device_name, argument
  integer(c_int64_t) :: n, i, j
  integer :: step, steps
  integer(c_int) :: device
  real(c_double) :: eigenvalue
  real(c_double), allocatable, target :: A(:, :), x(:)
  integer(c_int64_t), target :: shape(2), strides(2)
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

  shape = n
  strides = [8_c_int64_t, 8 * n]
  arrays(:)%shape = c_loc(shape)
  arrays(:)%strides = c_loc(strides)
  arrays(1)%data = c_loc(A)
  arrays(2)%data = c_loc(x)
  arrays(:)%ndim = [2, 1, 1]
  arrays(:)%direction = [OA_IN, OA_INOUT, OA_SCRATCH]
  call check(oa_device_open(trim(device_name)//c_null_char, device))
  call check(oa_region_enter(device, c_null_ptr, arrays, 3, region))
  do step = 1, steps
    call check(oa_blas_dsymv(OA_BLAS_LOWER, n, 1d0, arrays(1)%handle, n, arrays(2)%handle, 1_8, 0d0, &
                             arrays(3)%handle, 1_8))
    call check(oa_blas_dnrm2(n, arrays(3)%handle, 1_8, eigenvalue))
    call check(oa_blas_dcopy(n, arrays(3)%handle, 1_8, arrays(2)%handle, 1_8))
    call check(oa_blas_dscal(n, 1 / eigenvalue, arrays(2)%handle, 1_8))
  end do
  call check(oa_region_finish(region, OA_COMMIT, c_null_ptr))
  call check(oa_region_wait(region))
  print '(f0.12)', eigenvalue
end program
