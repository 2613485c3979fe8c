"""The arguments of BLAS, LAPACK and MKL's own routines, by name, in the order in which MKL prints them.

MKL prints Fortran's order and names without prefix, whichever interface was called: `cblas_sgemm` of
row-major matrices is SGEMM with the two swapped. Integers and characters are printed as values, the rest
as addresses. One row is a routine: its name without the letter of the precision, the letters, its
arguments. `s d c z` stand for f32, f64 and their complex ones; `sc dz` are norms of complex vectors.

Source: the reference BLAS and LAPACK 3.12 (netlib.org), oneMKL Developer Reference for its extensions.
"""

from functools import cache, lru_cache

from mlbackends.tracing.numbers import rejoined

_TABLE = """
# vectors
asum    s,d,sc,dz   n x incx
axpy    s,d,c,z     n alpha x incx y incy
axpby   s,d,c,z     n alpha x incx beta y incy
copy    s,d,c,z     n x incx y incy
dot     s,d         n x incx y incy
dsdot   -           n x incx y incy
sdsdot  -           n sb x incx y incy
dotc    c,z         n x incx y incy
dotu    c,z         n x incx y incy
nrm2    s,d,sc,dz   n x incx
rot     s,d,c,z,cs,zd   n x incx y incy c s
rotg    s,d,c,z     a b c s
rotm    s,d         n x incx y incy param
rotmg   s,d         d1 d2 x1 y1 param
scal    s,d,c,z,cs,zd   n alpha x incx
swap    s,d,c,z     n x incx y incy
amax    is,id,ic,iz n x incx
amin    is,id,ic,iz n x incx
# a matrix and a vector
gbmv    s,d,c,z     trans m n kl ku alpha a lda x incx beta y incy
gemv    s,d,c,z     trans m n alpha a lda x incx beta y incy
ger     s,d         m n alpha x incx y incy a lda
gerc    c,z         m n alpha x incx y incy a lda
geru    c,z         m n alpha x incx y incy a lda
hbmv    c,z         uplo n k alpha a lda x incx beta y incy
hemv    c,z         uplo n alpha a lda x incx beta y incy
her     c,z         uplo n alpha x incx a lda
her2    c,z         uplo n alpha x incx y incy a lda
hpmv    c,z         uplo n alpha ap x incx beta y incy
hpr     c,z         uplo n alpha x incx ap
hpr2    c,z         uplo n alpha x incx y incy ap
sbmv    s,d         uplo n k alpha a lda x incx beta y incy
spmv    s,d,c,z     uplo n alpha ap x incx beta y incy
spr     s,d,c,z     uplo n alpha x incx ap
spr2    s,d         uplo n alpha x incx y incy ap
symv    s,d,c,z     uplo n alpha a lda x incx beta y incy
syr     s,d,c,z     uplo n alpha x incx a lda
syr2    s,d         uplo n alpha x incx y incy a lda
tbmv    s,d,c,z     uplo trans diag n k a lda x incx
tbsv    s,d,c,z     uplo trans diag n k a lda x incx
tpmv    s,d,c,z     uplo trans diag n ap x incx
tpsv    s,d,c,z     uplo trans diag n ap x incx
trmv    s,d,c,z     uplo trans diag n a lda x incx
trsv    s,d,c,z     uplo trans diag n a lda x incx
# matrices
gemm    s,d,c,z,h,sc,dz     transa transb m n k alpha a lda b ldb beta c ldc
gemm3m  c,z         transa transb m n k alpha a lda b ldb beta c ldc
gemmt   s,d,c,z     uplo transa transb n k alpha a lda b ldb beta c ldc
hemm    c,z         side uplo m n alpha a lda b ldb beta c ldc
herk    c,z         uplo trans n k alpha a lda beta c ldc
her2k   c,z         uplo trans n k alpha a lda b ldb beta c ldc
symm    s,d,c,z     side uplo m n alpha a lda b ldb beta c ldc
syrk    s,d,c,z     uplo trans n k alpha a lda beta c ldc
syr2k   s,d,c,z     uplo trans n k alpha a lda b ldb beta c ldc
trmm    s,d,c,z     side uplo transa diag m n alpha a lda b ldb
trsm    s,d,c,z     side uplo transa diag m n alpha a lda b ldb
# MKL's own
gemm_bf16bf16f32    -   transa transb m n k alpha a lda b ldb beta c ldc
gemm_f16f16f32      -   transa transb m n k alpha a lda b ldb beta c ldc
gemm_s8u8s32        -   transa transb offsetc m n k alpha a lda ao b ldb bo beta c ldc co
gemm_s16s16s32      -   transa transb offsetc m n k alpha a lda ao b ldb bo beta c ldc co
gemm_batch          s,d,c,z     transa_array transb_array m_array n_array k_array alpha_array a_array lda_array b_array ldb_array beta_array c_array ldc_array group_count group_size
gemm3m_batch        c,z         transa_array transb_array m_array n_array k_array alpha_array a_array lda_array b_array ldb_array beta_array c_array ldc_array group_count group_size
gemm_batch_strided  s,d,c,z     transa transb m n k alpha a lda stridea b ldb strideb beta c ldc stridec batch_size
gemv_batch          s,d,c,z     trans_array m_array n_array alpha_array a_array lda_array x_array incx_array beta_array y_array incy_array group_count group_size
gemv_batch_strided  s,d,c,z     trans m n alpha a lda stridea x incx stridex beta y incy stridey batch_size
trsm_batch          s,d,c,z     side_array uplo_array transa_array diag_array m_array n_array alpha_array a_array lda_array b_array ldb_array group_count group_size
axpy_batch          s,d,c,z     n_array alpha_array x_array incx_array y_array incy_array group_count group_size
gemm_pack           s,d         identifier trans m n k alpha src ld dest
gemm_compute        s,d         transa transb m n k a lda b ldb beta c ldc
gemm_alloc          s,d         identifier m n k
omatcopy            mkl_s,mkl_d,mkl_c,mkl_z     ordering trans rows cols alpha a lda b ldb
imatcopy            mkl_s,mkl_d,mkl_c,mkl_z     ordering trans rows cols alpha ab lda ldb
omatcopy2           mkl_s,mkl_d,mkl_c,mkl_z     ordering trans rows cols alpha a lda stridea b ldb strideb
omatadd             mkl_s,mkl_d,mkl_c,mkl_z     ordering transa transb rows cols alpha a lda beta b ldb c ldc
# LU, Cholesky and symmetric factors, what solves by them, what inverts
getrf   s,d,c,z     m n a lda ipiv info
getrf2  s,d,c,z     m n a lda ipiv info
getf2   s,d,c,z     m n a lda ipiv info
getrfnpi s,d,c,z    m n nfact a lda info
getrs   s,d,c,z     trans n nrhs a lda ipiv b ldb info
getri   s,d,c,z     n a lda ipiv work lwork info
gesv    s,d,c,z     n nrhs a lda ipiv b ldb info
gesvx   s,d,c,z     fact trans n nrhs a lda af ldaf ipiv equed r c b ldb x ldx rcond ferr berr work iwork info
gecon   s,d,c,z     norm n a lda anorm rcond work iwork info
gerfs   s,d,c,z     trans n nrhs a lda af ldaf ipiv b ldb x ldx ferr berr work iwork info
geequ   s,d,c,z     m n a lda r c rowcnd colcnd amax info
gbtrf   s,d,c,z     m n kl ku ab ldab ipiv info
gbtrs   s,d,c,z     trans n kl ku nrhs ab ldab ipiv b ldb info
gbsv    s,d,c,z     n kl ku nrhs ab ldab ipiv b ldb info
gttrf   s,d,c,z     n dl d du du2 ipiv info
gttrs   s,d,c,z     trans n nrhs dl d du du2 ipiv b ldb info
gtsv    s,d,c,z     n nrhs dl d du b ldb info
potrf   s,d,c,z     uplo n a lda info
potrf2  s,d,c,z     uplo n a lda info
potrs   s,d,c,z     uplo n nrhs a lda b ldb info
potri   s,d,c,z     uplo n a lda info
posv    s,d,c,z     uplo n nrhs a lda b ldb info
pocon   s,d,c,z     uplo n a lda anorm rcond work iwork info
porfs   s,d,c,z     uplo n nrhs a lda af ldaf b ldb x ldx ferr berr work iwork info
pbtrf   s,d,c,z     uplo n kd ab ldab info
pbtrs   s,d,c,z     uplo n kd nrhs ab ldab b ldb info
pbsv    s,d,c,z     uplo n kd nrhs ab ldab b ldb info
pptrf   s,d,c,z     uplo n ap info
pptrs   s,d,c,z     uplo n nrhs ap b ldb info
ppsv    s,d,c,z     uplo n nrhs ap b ldb info
pttrf   s,d,c,z     n d e info
pttrs   s,d         n nrhs d e b ldb info
ptsv    s,d,c,z     n nrhs d e b ldb info
sytrf   s,d,c,z     uplo n a lda ipiv work lwork info
sytrs   s,d,c,z     uplo n nrhs a lda ipiv b ldb info
sytri   s,d,c,z     uplo n a lda ipiv work info
sysv    s,d,c,z     uplo n nrhs a lda ipiv b ldb work lwork info
hetrf   c,z         uplo n a lda ipiv work lwork info
hetrs   c,z         uplo n nrhs a lda ipiv b ldb info
hetri   c,z         uplo n a lda ipiv work info
hesv    c,z         uplo n nrhs a lda ipiv b ldb work lwork info
trtri   s,d,c,z     uplo diag n a lda info
trtrs   s,d,c,z     uplo trans diag n nrhs a lda b ldb info
trcon   s,d,c,z     norm uplo diag n a lda rcond work iwork info
# orthogonal factors and least squares
geqrf   s,d,c,z     m n a lda tau work lwork info
geqr2   s,d,c,z     m n a lda tau work info
geqp3   s,d         m n a lda jpvt tau work lwork info
gelqf   s,d,c,z     m n a lda tau work lwork info
geqlf   s,d,c,z     m n a lda tau work lwork info
gerqf   s,d,c,z     m n a lda tau work lwork info
geqrt   s,d,c,z     m n nb a lda t ldt work info
orgqr   s,d         m n k a lda tau work lwork info
orglq   s,d         m n k a lda tau work lwork info
ungqr   c,z         m n k a lda tau work lwork info
unglq   c,z         m n k a lda tau work lwork info
ormqr   s,d         side trans m n k a lda tau c ldc work lwork info
ormlq   s,d         side trans m n k a lda tau c ldc work lwork info
unmqr   c,z         side trans m n k a lda tau c ldc work lwork info
unmlq   c,z         side trans m n k a lda tau c ldc work lwork info
gels    s,d,c,z     trans m n nrhs a lda b ldb work lwork info
gelsd   s,d         m n nrhs a lda b ldb s rcond rank work lwork iwork info
gelss   s,d         m n nrhs a lda b ldb s rcond rank work lwork info
gelsy   s,d         m n nrhs a lda b ldb jpvt rcond rank work lwork info
# eigenvalues and singular values
gesvd   s,d         jobu jobvt m n a lda s u ldu vt ldvt work lwork info
gesvd   c,z         jobu jobvt m n a lda s u ldu vt ldvt work lwork rwork info
gesdd   s,d         jobz m n a lda s u ldu vt ldvt work lwork iwork info
gesdd   c,z         jobz m n a lda s u ldu vt ldvt work lwork rwork iwork info
gebrd   s,d,c,z     m n a lda d e tauq taup work lwork info
orgbr   s,d         vect m n k a lda tau work lwork info
ungbr   c,z         vect m n k a lda tau work lwork info
ormbr   s,d         vect side trans m n k a lda tau c ldc work lwork info
unmbr   c,z         vect side trans m n k a lda tau c ldc work lwork info
bdsqr   s,d,c,z     uplo n ncvt nru ncc d e vt ldvt u ldu c ldc work info
bdsdc   s,d         uplo compq n d e u ldu vt ldvt q iq work iwork info
syev    s,d         jobz uplo n a lda w work lwork info
syevd   s,d         jobz uplo n a lda w work lwork iwork liwork info
syevr   s,d         jobz range uplo n a lda vl vu il iu abstol m w z ldz isuppz work lwork iwork liwork info
syevx   s,d         jobz range uplo n a lda vl vu il iu abstol m w z ldz work lwork iwork ifail info
sygv    s,d         itype jobz uplo n a lda b ldb w work lwork info
sygvd   s,d         itype jobz uplo n a lda b ldb w work lwork iwork liwork info
sytrd   s,d         uplo n a lda d e tau work lwork info
orgtr   s,d         uplo n a lda tau work lwork info
ormtr   s,d         side uplo trans m n a lda tau c ldc work lwork info
heev    c,z         jobz uplo n a lda w work lwork rwork info
heevd   c,z         jobz uplo n a lda w work lwork rwork lrwork iwork liwork info
heevr   c,z         jobz range uplo n a lda vl vu il iu abstol m w z ldz isuppz work lwork rwork lrwork iwork liwork info
heevx   c,z         jobz range uplo n a lda vl vu il iu abstol m w z ldz work lwork rwork iwork ifail info
hegv    c,z         itype jobz uplo n a lda b ldb w work lwork rwork info
hegvd   c,z         itype jobz uplo n a lda b ldb w work lwork rwork lrwork iwork liwork info
hetrd   c,z         uplo n a lda d e tau work lwork info
ungtr   c,z         uplo n a lda tau work lwork info
unmtr   c,z         side uplo trans m n a lda tau c ldc work lwork info
steqr   s,d,c,z     compz n d e z ldz work info
stedc   s,d         compz n d e z ldz work lwork iwork liwork info
stemr   s,d,c,z     jobz range n d e vl vu il iu m w z ldz nzc isuppz tryrac work lwork iwork liwork info
sterf   s,d         n d e info
stebz   s,d         range order n vl vu il iu abstol d e m nsplit w iblock isplit work iwork info
geev    s,d         jobvl jobvr n a lda wr wi vl ldvl vr ldvr work lwork info
geev    c,z         jobvl jobvr n a lda w vl ldvl vr ldvr work lwork rwork info
geevx   s,d         balanc jobvl jobvr sense n a lda wr wi vl ldvl vr ldvr ilo ihi scale abnrm rconde rcondv work lwork iwork info
gees    s,d         jobvs sort select n a lda sdim wr wi vs ldvs work lwork bwork info
gees    c,z         jobvs sort select n a lda sdim w vs ldvs work lwork rwork bwork info
gehrd   s,d,c,z     n ilo ihi a lda tau work lwork info
gebal   s,d,c,z     job n a lda ilo ihi scale info
orghr   s,d         n ilo ihi a lda tau work lwork info
ormhr   s,d         side trans m n ilo ihi a lda tau c ldc work lwork info
hseqr   s,d         job compz n ilo ihi h ldh wr wi z ldz work lwork info
hseqr   c,z         job compz n ilo ihi h ldh w z ldz work lwork info
trevc   s,d         side howmny select n t ldt vl ldvl vr ldvr mm m work info
trsyl   s,d,c,z     trana tranb isgn m n a lda b ldb c ldc scale info
ggev    s,d         jobvl jobvr n a lda b ldb alphar alphai beta vl ldvl vr ldvr work lwork info
ggev    c,z         jobvl jobvr n a lda b ldb alpha beta vl ldvl vr ldvr work lwork rwork info
# small ones that others stand on
lange   s,d,c,z     norm m n a lda work
lansy   s,d,c,z     norm uplo n a lda work
lanhe   c,z         norm uplo n a lda work
lacpy   s,d,c,z     uplo m n a lda b ldb
laset   s,d,c,z     uplo m n alpha beta a lda
lascl   s,d,c,z     type kl ku cfrom cto m n a lda info
laswp   s,d,c,z     n a lda k1 k2 ipiv incx
larft   s,d,c,z     direct storev n k v ldv tau t ldt
larfb   s,d,c,z     side trans direct storev m n k v ldv t ldt c ldc work ldwork
larfg   s,d,c,z     n alpha x incx tau
larf    s,d,c,z     side m n v incv tau c ldc work
lauum   s,d,c,z     uplo n a lda info
# random numbers
vslnewstreamex      -   stream brng n params
vslnewstream        -   stream brng seed
vsldeletestream     -   stream
rnggaussian         vs,vd   method stream n r a sigma
rnguniform          vs,vd,vi    method stream n r a b
rngbernoulli        vi      method stream n r p
rngexponential      vs,vd   method stream n r a beta
"""  # noqa: E501


@cache
def _rows() -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Return stem, letters and argument names by the routine's full name in lower case."""
    found = {}
    for line in _TABLE.strip().splitlines():
        if line.startswith("#"):
            continue
        stem, letters, *arguments = line.split()
        for letter in letters.split(","):
            prefix = "" if letter == "-" else letter
            found[prefix + stem] = (stem, prefix, tuple(arguments))
    return found


def stems() -> frozenset[str]:
    """Return the names of all routines, without the letters of their precision."""
    return frozenset(stem for stem, _, _ in _rows().values())


def routine(name: str) -> tuple[str, str]:
    """Return a routine's stem and the letters of its precision, ("", "") if it is not known."""
    stem, prefix, _ = _rows().get(_plain(name), ("", "", ()))
    return stem, prefix


def argument_names(name: str) -> tuple[str, ...] | None:
    """Return the names of a routine's arguments, None if it is not known."""
    row = _rows().get(_plain(name))
    return row[2] if row else None


def _plain(name: str) -> str:
    """Take off what interfaces add to a name, such as cblas_ and a final underscore."""
    name = name.lower().rstrip("_")
    if name.startswith("lapacke_"):
        return name[8:].removesuffix("_work")
    return name.removeprefix("cblas_")


@lru_cache(maxsize=20_000)
def split_arguments(text: str, count: int) -> list[str]:
    """Split at commas, but not inside braces; put decimal commas back where that makes `count` of them.

    count: how many there should be, 0 if not known.
    """
    if ", " in text:
        return text.split(", ")
    values: list[str] = []
    depth = 0
    for part in text.split(",") if text else ():
        if depth:
            values[-1] += "," + part
        else:
            values.append(part)
        depth += part.count("{") - part.count("}")
    if count and len(values) > count:
        return rejoined(values, count, _plausible) or values
    return values


def _plausible(values: list[str]) -> bool:
    """Tell whether joined values have one comma and the six decimals with which MKL prints reals."""
    joined = [each.split(",") for each in values if "," in each and "{" not in each]
    return all(len(parts) == 2 and len(parts[1]) == 6 for parts in joined)
