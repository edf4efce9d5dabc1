"""The table of torch's names that libraries touch, mostly on import, and programs hardly call.

A section begins with its modules in brackets, all of which have its names, and the reason why some of them are refused. Each line is a
kind, of those in ``modules.KINDS``, and names: ``enum: Name(MEMBER MEMBER)``, ``value: NAME=literal``, ``is: Name=path in ampc``,
``class: Name(method of the class)``, ``gives VALUE: function``. A name whose kind is ``works`` has code of its own. An indented line goes on.
A module in brackets that begins with a dot is below the first. Modules that have no file are made of their sections.
docs/compatibility/library_names.md shows the table; names of torch.distributed are in ``table_distributed``."""

TABLE = """
[torch]
ampc has no symbolic shapes, TorchScript or graphs; shapes are ints and models run as they are
works: ops library profiler
is: torch=. Stream=cuda.Stream Event=cuda.Event classes=ops.classes legacy_contiguous_format=contiguous_format ScriptModule=jit.ScriptModule
    _check=_library_functions._check _check_with=_library_functions._check_with _check_index=_library_functions._check_index
    _check_value=_library_functions._check_value _check_type=_library_functions._check_type _check_is_size=_library_functions._check_is_size
    _check_not_implemented=_library_functions._check_not_implemented _check_tensor_all=_library_functions._check_tensor_all
    _check_tensor_all_with=_library_functions._check_tensor_all_with _assert=_library_functions._assert _assert_async=_library_functions._assert_async
    sym_int=_library_functions.sym_int sym_float=_library_functions.sym_float sym_max=_library_functions.sym_max sym_min=_library_functions.sym_min
    sym_not=_library_functions.sym_not sym_ite=_library_functions.sym_ite sym_sum=_library_functions.sym_sum sym_sqrt=_library_functions.sym_sqrt
    cond=_library_functions.cond while_loop=_library_functions.while_loop get_device_module=_library_functions.get_device_module
    _shape_as_tensor=_library_functions._shape_as_tensor _segment_reduce=segment_reduce
    _convert_indices_from_coo_to_csr=_library_functions._convert_indices_from_coo_to_csr
    _convert_indices_from_csr_to_coo=_library_functions._convert_indices_from_csr_to_coo
class: SymInt SymFloat SymBool TensorType ScriptFunction CompilationUnit PyTorchFileReader PyTorchFileWriter
refused: fork wait import_ir_module parse_ir parse_schema

[torch.functional]
ampc has no complex numbers
is: atleast_1d=atleast_1d atleast_2d=atleast_2d atleast_3d=atleast_3d broadcast_shapes=broadcast_shapes broadcast_tensors=broadcast_tensors
    cartesian_prod=cartesian_prod block_diag=block_diag cdist=cdist chain_matmul=chain_matmul einsum=einsum lu=lu norm=norm meshgrid=meshgrid
    pca_lowrank=pca_lowrank split=split svd_lowrank=svd_lowrank tensordot=tensordot unique=unique unique_consecutive=unique_consecutive
    unravel_index=unravel_index F=nn.functional Tensor=Tensor
refused: stft istft

[torch.nn.functional]
these are parts of torch's own functions
is: _Reduction=nn._reduction grad=nn.grad

[torch.nn._reduction]
these are parts of torch's own losses
is: get_enum=_library_functions.get_enum

[torch.serialization]
these are parts of torch's own files
any: MAP_LOCATION FileLike
refused: normalize_storage_type location_tag

[torch.cuda.amp.autocast_mode torch.cuda.amp.grad_scaler torch.cuda.amp.common]
these are parts of torch.cuda.amp
is: autocast=cuda.amp.autocast custom_fwd=cuda.amp.custom_fwd custom_bwd=cuda.amp.custom_bwd GradScaler=cuda.amp.GradScaler
    amp_definitely_not_available=_library_functions.amp_definitely_not_available

[torch.cpu.amp.autocast_mode torch.cpu.amp.grad_scaler]
these are parts of torch.cpu.amp
is: autocast=cpu.amp.autocast GradScaler=cpu.amp.GradScaler

[torch.cpu]
there is one CPU, whose work is done when a call returns
gives True: is_initialized
nothing: set_device

[torch._C]
the core of ampc is another one
is: DispatchKeySet=_library_functions.DispatchKeySet TensorBase=Tensor _TensorBase=Tensor _TensorMeta=Tensor.__class__
    _LinAlgError=linalg.LinAlgError Generator=Generator default_generator=default_generator memory_format=memory_format
    layout=layout device=device Size=Size
    _get_accelerator=_library_functions._get_accelerator _get_default_device=_library_functions._get_default_device
enum: DispatchKey(CPU CUDA Meta Autograd AutogradCPU AutogradCUDA AutocastCPU AutocastCUDA AutocastXPU CompositeExplicitAutograd
    CompositeImplicitAutograd BackendSelect Python Functionalize)
class: Graph Value Block ScriptObject ScriptFunction ScriptModule FunctionSchema Argument Type TensorType ListType Tag
around: _ExcludeDispatchKeyGuard _AutoDispatchBelowAutograd _DisableTorchDispatch _DisableFuncTorch
gives False: _are_functorch_transforms_active _cuda_isInBadFork _jit_can_fuse_on_cpu _jit_can_fuse_on_gpu _is_tracing _has_mkldnn
gives None: _get_tracing_state
gives 'privateuseone': _get_privateuse1_backend_name
nothing: _log_api_usage_once _cuda_clearCublasWorkspaces _set_math_sdp_allow_fp16_bf16_reduction _jit_set_profiling_executor _jit_set_profiling_mode
    _jit_override_can_fuse_on_cpu _jit_override_can_fuse_on_gpu _jit_set_texpr_fuser_enabled _jit_set_nvfuser_enabled _jit_set_nvfuser_guard_mode
refused: _current_autograd_node _current_graph_task_id _storage_Use_Count parse_schema _get_schema _dispatch_has_kernel_for_dispatch_key

[torch._C._nn]
the core of ampc is another one
is: _parse_to=_tensor.device.parse_to

[torch._C._functorch]
the core of ampc is another one, whose vmap is a loop
gives False: is_legacy_batchedtensor is_batchedtensor is_gradtrackingtensor is_functorch_wrapped_tensor

[torch._C._distributed_c10d torch._C._distributed_rpc]
ampc's processes talk by MPI; torch.distributed is the way to them
gives False: _is_current_rpc_agent_set
class: Reducer ProcessGroup Store Work ReduceOp

[torch.__config__]
how ampc was built
is: show=_library_functions.show parallel_info=_library_functions.parallel_info

[torch._custom_ops torch._library torch._library.custom_ops]
use torch.library.custom_op
is: custom_op=library.custom_op CustomOpDef=library.CustomOpDef
refused: get_ctx impl impl_abstract impl_backward impl_save_for_backward

[torch._ops]
operators are rows of ampc's table; torch.ops calls them
is: OpOverload=ops.OpOverload OpOverloadPacket=ops.OpOverloadPacket ops=ops
class: HigherOrderOperator

[torch.library]
ampc calls an operator's own function, and traces nothing
works: Library custom_op define impl register_kernel register_fake impl_abstract register_autograd infer_schema register_autocast CustomOpDef opcheck
    register_vmap
refused: register_torch_dispatch get_ctx get_kernel triton_op wrap_triton fallthrough_kernel

[torch.profiler .profiler]
the profiler sees ampc's operators on the thread that it was started on
works: profile schedule record_function supported_activities tensorboard_trace_handler ProfilerAction ProfilerActivity kineto_available
is: _default_schedule_fn=profiler.always _KinetoProfile=profiler.profile
enum: DeviceType(CPU CUDA XPU MTIA HPU)
class: ExecutionTraceObserver

[torch.autograd.profiler]
ampc writes no marks for NVIDIA's and Intel's profilers; torch.profiler.profile records operators
is: profile=profiler.autograd_profile record_function=profiler.record_function ProfilerActivity=profiler.ProfilerActivity EventList=profiler.EventList
    FunctionEvent=profiler.FunctionEvent FunctionEventAvg=profiler.Average kineto_available=profiler.kineto_available format_time=profiler.format_time
    _KinetoProfile=profiler.profile
class: emit_nvtx emit_itt
refused: load_nvprof

[torch.autograd.profiler_util torch.autograd.profiler_legacy]
torch.profiler.profile records operators
is: EventList=profiler.EventList FunctionEvent=profiler.FunctionEvent FunctionEventAvg=profiler.Average profile=profiler.autograd_profile

[torch.autograd]
torch.profiler.profile records operators
is: ProfilerActivity=profiler.ProfilerActivity kineto_available=profiler.kineto_available _profiler_enabled=profiler.is_recording
class: ProfilerConfig ProfilerState ProfilerEvent DeviceType
refused: _disable_profiler

[torch.fx .graph .graph_module .node .proxy .interpreter ._symbolic_trace .immutable_collections]
torch.fx tracing is not in ampc; models run as they are, and register_forward_hook sees what passes through a module
itself: wrap has_side_effect
decorates: compatibility
any: Target Argument
value: _USER_PRESERVED_ATTRIBUTES_KEY='_user_preserved_attributes' PH=None
class: CodeGen Graph Interpreter Node PHBase Proxy ProxyableClassMeta Tracer Transformer immutable_dict immutable_list Attribute ParameterProxy
module: GraphModule _CodeOnlyModule
error: TraceError
refused: symbolic_trace map_arg map_aggregate replace_pattern _copy_attr _autowrap_check _patch_wrapped_functions

[torch.fx._symbolic_trace torch.compiler torch._dynamo.external_utils]
nothing is traced
gives False: is_fx_tracing is_fx_symbolic_tracing

[torch.fx._pytree]
torch.fx tracing is not in ampc; torch.utils._pytree walks nested containers
refused: register_pytree_flatten_spec tree_flatten_spec

[torch.fx.experimental .proxy_tensor .symbolic_shapes ._config .optimization]
torch.fx tracing is not in ampc; shapes are ints
gives None: get_proxy_mode
gives False: has_free_symbols is_symbolic has_hint_
is: guard_or_false=_library_functions.plain_bool guard_or_true=_library_functions.plain_bool statically_known_true=_library_functions.plain_bool
    guard_size_oblivious=_library_functions.plain_bool definitely_true=_library_functions.plain_bool guard_int=_library_functions.sym_int
error: GuardOnDataDependentSymNode ConstraintViolationError
class: ShapeEnv DimDynamic StatelessSymbolicContext ProxyTorchDispatchMode
refused: make_fx maybe_disable_fake_tensor_mode free_symbols free_unbacked_symbols fuse optimize_for_inference

[torch.fx.passes .shape_prop .split_module .infra .infra.pass_base .graph_drawer torch.fx.subgraph_rewriter torch.fx.operator_schemas
    torch.fx.tensor_type]
torch.fx tracing is not in ampc; models run as they are
class: PassBase PassResult ShapeProp FxGraphDrawer
refused: split_module replace_pattern normalize_function

[torch.compiler]
ampc compiles nothing; models run as they are, because the core is compiled already
works: compile disable is_compiling is_dynamo_compiling reset set_stance
itself: allow_in_graph assume_constant_result nested_compile_region wrap_numpy keep_portable_guards_unsafe
decorates: substitute_in_graph
gives False: is_exporting
gives []: list_backends
nothing: cudagraph_mark_step_begin set_enable_guard_collectives
refused: load_compiled_function load_cache_artifacts save_cache_artifacts

[torch._dynamo]
ampc compiles nothing; models run as they are, because the core is compiled already
works: config allow_in_graph disable disallow_in_graph graph_break is_compiling mark_dynamic mark_static mark_static_address optimize reset
itself: assume_constant_result run forbid_in_graph nonstrict_trace
decorates: substitute_in_graph
gives []: list_backends
gives False: is_dynamo_supported is_inductor_supported
nothing: maybe_mark_dynamic reset_code_caches mark_unbacked
is: OptimizedModule=nn._optimized.OptimizedModule
refused: explain export register_backend optimize_assert

[torch._dynamo.eval_frame]
ampc compiles nothing; models run as they are, because the core is compiled already
is: OptimizedModule=nn._optimized.OptimizedModule optimize=_dynamo.optimize
gives False: is_dynamo_supported is_inductor_supported
refused: export

[torch._dynamo.utils torch._dynamo.testing torch._dynamo.backends torch._dynamo.backends.registry torch._dynamo.decorators]
ampc compiles nothing; models run as they are
gives False: is_compile_supported
itself: assume_constant_result disable allow_in_graph
nothing: mark_static_address mark_dynamic mark_static
class: CompileCounter CompileProfiler
refused: compile_times register_backend

[torch._dynamo.exc]
ampc compiles nothing
error: TorchDynamoException TensorifyScalarRestartAnalysis Unsupported BackendCompilerFailed UserError InternalTorchDynamoError

[torch._dynamo._trace_wrapped_higher_order_op]
ampc compiles nothing; an index is a tensor or an int as it is
around: TransformGetItemToIndex

[torch._inductor .utils .cpp_builder .cpu_vec_isa .runtime .runtime.cache_dir_utils .compile_fx .codecache]
torch's compiler is not in ampc; models run as they are
nothing: cudagraph_mark_step_begin
gives {}: list_mode_options
gives []: list_options
class: CompiledFxGraph
refused: compile aoti_compile_and_package aoti_load_package aot_compile get_cpp_compiler pick_vec_isa cache_dir compile_fx

[torch._inductor.config torch._functorch torch._functorch.config torch.fx.config torch.compiler.config]
options of torch's compiler, which is not in ampc; they can be set without effect

[torch._functorch.aot_autograd torch._functorch.apis torch._functorch.eager_transforms torch._functorch.vmap]
torch's compiler is not in ampc; torch.func has vmap, grad, vjp, jvp and functional_call
is: vmap=func.vmap
refused: aot_function aot_module aot_module_simplified make_boxed_func

[torch._functorch.deprecated torch._functorch.make_functional torch._functorch.python_key]
the package functorch became torch.func; use func.functional_call and func.stack_module_state
is: vmap=func.vmap grad=func.grad grad_and_value=func.grad_and_value hessian=func.hessian jacfwd=func.jacfwd jacrev=func.jacrev jvp=func.jvp
    vjp=func.vjp functionalize=func.functionalize
class: FunctionalModule FunctionalModuleWithBuffers
refused: make_functional make_functional_with_buffers combine_state_for_ensemble make_fx

[torch._guards torch._logging torch._lazy torch._numpy torch._refs torch._decomp torch._meta_registrations]
ampc traces nothing
nothing: set_logs
gives None: detect_fake_mode
class: TracingContext CompileContext
refused: get_decompositions core_aten_decompositions register_decomposition

[torch._subclasses .fake_tensor]
ampc has no fake tensors; every tensor has its memory
class: FakeTensor FakeTensorMode FakeTensorConverter CrossRefFakeMode
gives False: is_fake
error: DynamicOutputShapeException DataDependentOutputException UnsupportedOperatorException

[torch._prims_common .wrappers]
torch's reference operators are not in ampc
is: is_contiguous_or_false=_library_functions.lies_in_rows is_contiguous=_library_functions.lies_in_rows
nothing: alert_not_deterministic
any: TensorLikeType DeviceLikeType NumberType ShapeType
refused: make_contiguous_strides_for elementwise_dtypes

[torch._higher_order_ops .associative_scan .flex_attention .while_loop .cond .wrap .scan]
torch's higher-order operators are not in ampc; a Python loop does the same
is: cond=_library_functions.cond while_loop=_library_functions.while_loop
class: TransformGetItemToIndex
refused: associative_scan scan flex_attention flex_attention_backward wrap_with_set_grad_enabled

[torch.export ._trace .exported_program .decomp_utils .graph_signature .dynamic_shapes .unflatten .passes torch._export torch._export.utils
    torch._export.converter]
torch.export is not in ampc; save the state_dict with ampc.save(..., format='torch') or safetensors, load it into the same model in torch and export
    it there
class: AdditionalInputs Constraint CustomDecompTable ExportedProgram ExportGraphSignature ExportBackwardSignature ModuleCallEntry ShapesCollection
    ModuleCallSignature FlatArgsAdapter InputSpec OutputSpec InputKind OutputKind TensorArgument
module: UnflattenedModule
enum: Dim(AUTO DYNAMIC STATIC)
refused: export export_for_training draft_export save load dims unflatten register_dataclass default_decompositions move_to_device_pass

[torch.onnx .utils .operators .symbolic_helper .symbolic_opset9 .symbolic_opset11 .symbolic_opset12 ._internal ._internal.exporter .errors
    .verification .ops ._globals]
writing ONNX is not in ampc; save the state_dict with ampc.save(..., format='torch') or safetensors, load it into the same model in torch and export
    it there
gives False: is_in_onnx_export
decorates: parse_args
nothing: register_custom_op_symbolic unregister_custom_op_symbolic
enum: OperatorExportTypes(ONNX ONNX_ATEN ONNX_ATEN_FALLBACK ONNX_FALLTHROUGH)
enum: TrainingMode(EVAL PRESERVE TRAINING)
enum: TensorProtoDataType(UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 COMPLEX128 BFLOAT16)
class: ONNXProgram ExportOptions OnnxRegistry InputObserver JitScalarType
module: ExportableModule
error: OnnxExporterError UnsupportedOperatorError SymbolicValueError CheckerError
refused: export dynamo_export export_to_pretty_string select squeeze unsqueeze dropout masked_fill softmax shape_as_tensor cast_pytorch_to_onnx

[torch.jit]
ampc has no TorchScript; functions and modules run as Python
works: Final ScriptModule annotate export freeze ignore interface is_scripting is_tracing load optimize_for_inference save script script_if_tracing
    trace trace_module unused _overload _overload_method _script_if_tracing script_method isinstance
class: Attribute ScriptFunction CompilationUnit Future
module: RecursiveScriptModule TopLevelTracedModule TracedModule
warning: TracerWarning
error: Error
around: optimized_execution fuser strict_fusion _disable_emit_hooks
nothing: set_fusion_strategy enable_onednn_fusion
gives False: onednn_fusion_enabled
refused: fork wait export_opnames _get_trace_graph

[torch.jit._script torch.jit._trace torch.jit._recursive torch.jit._state torch.jit._freeze torch.jit.mobile torch.jit.frontend
    torch.jit._builtins]
ampc has no TorchScript; functions and modules run as Python
is: ScriptModule=jit.ScriptModule RecursiveScriptModule=jit.RecursiveScriptModule ScriptFunction=jit.ScriptFunction script=jit.script trace=jit.trace
class: ConcreteTypeStore
module: TopLevelTracedModule TracedModule
warning: TracerWarning
refused: create_script_module wrap_cpp_module get_jit_def get_signature _load_for_lite_interpreter

[torch.jit.annotations]
ampc has no TorchScript; annotations are Python's
is: List=_library_functions.List Tuple=_library_functions.Tuple Optional=_library_functions.Optional
any: BroadcastingList1 BroadcastingList2 BroadcastingList3
refused: get_signature try_ann_to_type

[torch._tensor_str]
ampc prints tensors in its own way; str(t) is the text
is: PRINT_OPTS=_tensor.printing._options set_printoptions=set_printoptions printoptions=_library_functions.printoptions
refused: _tensor_str _str _str_intern _add_suffixes get_printoptions

[torch._jit_internal]
ampc has no TorchScript; functions and modules run as Python
is: Final=jit.Final _overload=jit._overload _overload_method=jit._overload_method export=jit.export ignore=jit.ignore unused=jit.unused
    is_scripting=jit.is_scripting
any: BroadcastingList1 BroadcastingList2 BroadcastingList3 Future RRef
itself: _copy_to_script_wrapper
refused: boolean_dispatch

[torch.package]
packages of code are not in ampc; use ampc.save
class: PackageExporter PackageImporter
error: PackagingError EmptyMatchError

[torch.overrides]
functions are asked for as overrides.py says; these are torch's own tools for it
gives {}: get_testing_overrides
refused: redispatch_function

[torch.utils._triton]
Triton is not used
gives False: has_triton has_triton_package has_triton_tma

[torch.utils._sympy .numbers .value_ranges .functions]
ampc has no symbolic shapes
class: IntInfinity NegativeIntInfinity ValueRanges FloorDiv

[torch.utils.checkpoint]
which operators are computed again is not chosen one by one; checkpoint computes all of a part again
is: get_device_states=_library_functions.get_device_states set_device_states=_library_functions.set_device_states
enum: CheckpointPolicy(MUST_SAVE PREFER_SAVE MUST_RECOMPUTE PREFER_RECOMPUTE MUST_CPU_OFFLOAD PREFER_CPU_OFFLOAD)
class: SelectiveCheckpointContext CheckpointFunction
refused: create_selective_checkpoint_contexts check_backward_validity detach_variable

[torch.hub]
a repository's code is not fetched; clone it and import it in a script that `ampc run` runs
is: tqdm=_library_functions.tqdm
refused: load list help

[torch.utils.bundled_inputs torch.utils.mkldnn]
ampc has no TorchScript
refused: augment_model_with_bundled_inputs to_mkldnn

[torch.utils]
two tensors cannot change places, because both are views of the core; use copy_
is: set_module=_library_functions.set_module
refused: swap_tensors

[torch.utils.data.datapipes .iter .iter.combinatorics .map .datapipe torch.utils.data.graph torch.utils.data.graph_settings]
datapipes are not in ampc; use a Dataset or IterableDataset
decorates: functional_datapipe
class: IterDataPipe MapDataPipe Batcher IterableWrapper Mapper Shuffler ShufflerIterDataPipe FileLister FileOpener Filter SequenceWrapper
    DFIterDataPipe DataChunk
refused: apply_shuffle_settings apply_random_seed apply_sharding traverse_dps

[torch.utils.data]
datapipes are not in ampc; use a Dataset or IterableDataset
is: IterDataPipe=utils.data.datapipes.IterDataPipe MapDataPipe=utils.data.datapipes.MapDataPipe
    functional_datapipe=utils.data.datapipes.functional_datapipe _DatasetKind=utils.data.dataloader._DatasetKind

[torch.utils.data._utils.collate]
these are parts of torch's own loader
is: default_collate=utils.data.default_collate default_convert=utils.data.default_convert
    default_collate_fn_map=utils.data.collate.default_collate_fn_map collate_tensor_fn=utils.data.collate.collate_tensor_fn
    np_str_obj_array_pattern=_library_functions.np_str_obj_array_pattern collate=utils.data.collate.collate
    collate_numpy_array_fn=utils.data.collate.collate_numpy_array_fn collate_numpy_scalar_fn=utils.data.collate.collate_numpy_scalar_fn
    collate_float_fn=utils.data.collate.collate_float_fn collate_int_fn=utils.data.collate.collate_int_fn
    collate_str_fn=utils.data.collate.collate_str_fn default_collate_err_msg_format=utils.data.collate.default_collate_err_msg_format

[torch.utils.data._utils.worker]
these are parts of torch's own loader
is: get_worker_info=utils.data.get_worker_info WorkerInfo=utils.data.WorkerInfo
refused: _generate_state

[torch.utils.data._utils.pin_memory]
these are parts of torch's own loader
is: pin_memory=utils.data.dataloader._pinned

[torch.utils._contextlib]
these are parts of torch's own modes
is: _DecoratorContextManager=autograd.grad_mode.ContextDecorator

[torch.utils.module_tracker torch.utils.weak]
nothing here follows modules or tensors by weak names; forward hooks and the weakref module do
class: ModuleTracker WeakIdKeyDictionary WeakTensorKeyDictionary WeakIdRef

[torch.__future__]
parameters keep their identity where a module is converted
gives False: get_overwrite_module_params_on_conversion get_swap_module_params_on_conversion
refused: set_overwrite_module_params_on_conversion set_swap_module_params_on_conversion

[torch.testing._internal .common_utils .common_cuda .common_device_type .common_distributed .distributed]
torch's own tests are not in ampc; use unittest or pytest, and ampc.testing.assert_close
class: TestCase
refused: run_tests instantiate_parametrized_tests parametrize make_tensor

[torch.optim.optimizer]
torch's own ways to run its optimizers are not in ampc
itself: _use_grad_for_differentiable
decorates: _disable_dynamo_if_unsupported
gives (False,False): _default_to_fused_or_foreach
gives []: _get_capturable_supported_devices
any: ParamsT params_t _params_t StateDict
refused: _get_value _stack_if_compiling _dispatch_sqrt _view_as_real

[torch.optim .adadelta .adagrad .adamax .adamw .asgd .nadam .radam .rmsprop .rprop ._adafactor ._muon]
the optimizers are in torch.optim
is: Adadelta=optim.Adadelta Adagrad=optim.Adagrad Adamax=optim.Adamax AdamW=optim.AdamW ASGD=optim.ASGD NAdam=optim.NAdam RAdam=optim.RAdam
    RMSprop=optim.RMSprop Rprop=optim.Rprop Adafactor=optim.Adafactor Muon=optim.Muon

[torch.utils.data.dataloader]
these are types for annotations
any: _collate_fn_t _worker_init_fn_t

[torch.nn.parallel]
one device is used by a process; DistributedDataParallel trains in several processes
refused: scatter gather replicate parallel_apply data_parallel

[torch.nn.parallel.distributed torch.nn.parallel]
DistributedDataParallel averages gradients over processes
works: DistributedDataParallel GradBucket

[torch.nn.parallel.scatter_gather torch.nn.parallel.comm torch.nn.parallel.replicate torch.nn.parallel.parallel_apply torch.nn.parallel.data_parallel]
one device is used at a time
is: DataParallel=nn.parallel.DataParallel
refused: scatter gather scatter_kwargs broadcast_coalesced reduce_add_coalesced replicate parallel_apply

[torch.nn.attention.flex_attention]
attention with functions is computed with the whole matrix of scores
works: flex_attention create_block_mask create_mask BlockMask and_masks or_masks noop_mask AuxRequest AuxOutput
value: _DEFAULT_SPARSE_BLOCK_SIZE=128
any: FlexKernelOptions

[torch.nn.quantized torch.nn.qat torch.nn.intrinsic torch.nn.quantizable .dynamic .functional torch.nn.intrinsic.qat torch.ao torch.ao.nn
    torch.ao.nn.quantized torch.ao.nn.quantized.dynamic torch.ao.nn.intrinsic torch.ao.nn.qat torch.ao.ns torch.ao.pruning]
quantised types are not in ampc; float16 and bfloat16 are its small types
class: WeightNormSparsifier
module: FloatFunctional QFunctional Linear Conv2d Embedding LinearReLU ConvReLU2d ConvBnReLU2d BNReLU2d LSTM

[torch.ao.quantization torch.quantization .fx .fx._decomposed .observer .qconfig .quantize_fx .quantizer .quantize_pt2e .fake_quantize .stubs .utils
    .qconfig_mapping .quantization_mappings]
quantisation is not in ampc; float16 and bfloat16 are its small types
class: QConfig QConfigMapping QConfigDynamic Quantizer
module: QuantStub DeQuantStub QuantWrapper ObserverBase MinMaxObserver MovingAverageMinMaxObserver HistogramObserver PerChannelMinMaxObserver
    PlaceholderObserver FakeQuantize FakeQuantizeBase
refused: default_observer default_weight_observer default_per_channel_weight_observer prepare prepare_qat convert quantize quantize_dynamic
    quantize_qat fuse_modules fuse_modules_qat get_default_qconfig get_default_qat_qconfig get_default_qconfig_mapping prepare_fx prepare_qat_fx
    convert_fx prepare_pt2e convert_pt2e disable_observer enable_observer disable_fake_quant enable_fake_quant add_quant_dequant

[torch.fft]
ampc has no complex tensors (docs/architecture/complex.md says why); numpy.fft transforms arrays
works: fftfreq rfftfreq fftshift ifftshift
refused: fft fft2 fftn hfft hfft2 hfftn ifft ifft2 ifftn ihfft ihfft2 ihfftn irfft irfft2 irfftn rfft rfft2 rfftn

[torch.masked]
masked tensors are not in ampc; use masked_fill and torch.where
class: MaskedTensor
refused: mean var std sum prod amax amin argmax argmin norm median softmax log_softmax masked_tensor as_masked_tensor

[torch.nested]
nested tensors are not in ampc; pad_sequence and pack_padded_sequence hold sequences of several lengths
refused: nested_tensor as_nested_tensor nested_tensor_from_jagged narrow to_padded_tensor masked_select

[torch.sparse]
sparse tensors are not in ampc; scatter_add and index_add add up by indices
refused: mm sum addmm sampled_addmm softmax log_softmax spdiags spsolve to_sparse_semi_structured
class: SparseSemiStructuredTensor

[torch]
sparse tensors are not in ampc; scatter_add and index_add add up by indices
is: sparse_coo=_library_functions.sparse_coo sparse_csr=_library_functions.sparse_csr sparse_csc=_library_functions.sparse_csc
    sparse_bsr=_library_functions.sparse_bsr sparse_bsc=_library_functions.sparse_bsc jagged=_library_functions.jagged
refused: sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor sparse_compressed_tensor

[torch.cuda]
nvidia-smi shows what the GPU does, also of other processes
refused: list_gpu_processes utilization temperature power_draw clock_rate memory_usage

[torch.cuda]
the allocator keeps no list of its blocks; memory_summary() and memory_stats() tell what is held
refused: memory_snapshot

[torch.cuda]
ampc opens CUDA's libraries itself
is: get_rng_state_all=_library_functions.get_rng_state_all set_rng_state_all=_library_functions.set_rng_state_all
    memory_cached=cuda.memory_reserved max_memory_cached=cuda.max_memory_reserved reset_max_memory_cached=cuda.reset_peak_memory_stats
value: default_generators=()
class: CUDAPluggableAllocator GreenContext
refused: cudart change_current_allocator

[torch.cuda.random]
one random stream serves all devices
is: get_rng_state=cuda.get_rng_state set_rng_state=cuda.set_rng_state manual_seed=cuda.manual_seed manual_seed_all=cuda.manual_seed_all
    get_rng_state_all=_library_functions.get_rng_state_all set_rng_state_all=_library_functions.set_rng_state_all

[torch.cuda.memory]
the allocator keeps no history
refused: _record_memory_history _dump_snapshot _snapshot memory_snapshot

[torch.cuda.profiler]
ampc does not drive NVIDIA's profiler; torch.profiler.profile records operators
refused: start stop init profile

[torch.cuda.comm torch.cuda.nccl torch.cuda.gds torch.cuda.tunable torch.cuda.sparse torch.cuda.jiterator]
one GPU is used at a time
gives None: version
gives False: is_available is_enabled tuning_is_enabled
refused: broadcast scatter gather reduce_add all_reduce reduce all_gather broadcast_coalesced

[torch.xpu]
ampc does not use Intel's GPUs
gives False: is_available is_initialized is_bf16_supported is_tf32_supported is_current_stream_capturing _is_compiled
gives 0: device_count
gives []: get_arch_list get_rng_state_all
nothing: empty_cache synchronize manual_seed_all manual_seed seed seed_all set_rng_state_all reset_peak_memory_stats reset_accumulated_memory_stats
value: default_generators=()
class: ByteTensor CharTensor ShortTensor IntTensor LongTensor HalfTensor BFloat16Tensor FloatTensor DoubleTensor BoolTensor Event Stream StreamContext
    MemPool XPUGraph XPUPluggableAllocator
refused: current_device current_stream device device_of get_device_capability get_device_name get_device_properties get_rng_state graph init
    initial_seed make_graphed_callables max_memory_allocated max_memory_reserved mem_get_info memory_allocated memory_reserved memory_snapshot
    memory_stats memory_usage set_device set_rng_state set_stream stream use_mem_pool utilization can_device_access_peer

[torch.xpu.random torch.xpu.memory]
ampc does not use Intel's GPUs
refused: get_rng_state set_rng_state memory_allocated memory_reserved mem_get_info memory_stats

[torch.mps .profiler .event]
ampc does not use Apple's GPUs
gives False: is_available
gives 0: device_count
nothing: empty_cache synchronize manual_seed seed
class: Event
refused: get_rng_state set_rng_state current_allocated_memory driver_allocated_memory recommended_max_memory set_per_process_memory_fraction
    compile_shader clear_graph_cache start stop profile

[torch.mtia]
ampc does not use MTIA
gives False: is_available is_initialized is_bf16_supported
gives 0: device_count
nothing: empty_cache synchronize manual_seed_all manual_seed
class: Event Stream
refused: current_device get_device_capability get_device_properties get_rng_state set_rng_state max_memory_allocated memory_allocated memory_stats
    set_device

[torch.backends.cuda]
attention has one way, chosen by shapes and device
gives False: can_use_flash_attention can_use_efficient_attention can_use_cudnn_attention is_flash_attention_available
    fp16_bf16_reduction_math_sdp_allowed
nothing: allow_fp16_bf16_reduction_math_sdp preferred_linalg_library preferred_blas_library

[torch.backends]
ampc does not use these libraries
around: __allow_nonbracketed_mutation
nothing: disable_global_flags
gives True: flags_frozen

[torch.backends.nnpack torch.backends.cusparselt torch.backends.kleidiai torch.backends.miopen torch.backends.mha]
ampc does not use these libraries
gives False: is_available get_fastpath_enabled
nothing: set_flags set_fastpath_enabled
around: flags

[torch.numa .binding]
processes are not bound to parts of the machine; use numactl
enum: AffinityMode(NODE SOCKET EXCLUSIVE CORE_COMPLEX)
class: NumaOptions
"""
