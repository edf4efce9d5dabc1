"""The part of the table in ``table`` with torch.distributed's names."""

TABLE = """
[torch.distributed .distributed_c10d]
this part of torch.distributed is not there yet; docs/compatibility/library_names.md lists what is
works: is_available is_initialized is_torchelastic_launched is_mpi_available is_nccl_available is_backend_available
    _get_default_group init_process_group
    destroy_process_group get_rank get_world_size get_backend get_global_rank get_group_rank get_node_local_rank get_process_group_ranks new_group
    all_reduce all_gather all_gather_into_tensor all_gather_object all_to_all all_to_all_single barrier batch_isend_irecv
    broadcast broadcast_object_list gather gather_object irecv isend
    monitored_barrier recv reduce reduce_scatter reduce_scatter_tensor scatter scatter_object_list send group ReduceOp ProcessGroup Work P2POp
    DistError DistBackendError DistNetworkError DistStoreError QueueEmptyError
    Backend DebugLevel get_backend_config get_debug_level get_default_backend_for_device get_pg_count set_debug_level set_debug_level_from_env
    all_gather_coalesced all_reduce_coalesced all_gather_single reduce_scatter_single
    send_object_list recv_object_list new_subgroups new_subgroups_by_enumeration rendezvous Store HashStore FileStore TCPStore PrefixStore
gives False: is_ucc_available is_xccl_available supports_complex
is: default_pg_timeout=_library_functions.default_pg_timeout GroupMember=_library_functions.group GradBucket=nn.parallel.distributed.GradBucket
    _get_global_rank=distributed.get_global_rank _rank_not_in_group=distributed.groups.is_stranger
    _pg_map=distributed.groups._groups is_gloo_available=distributed.is_mpi_available
    DeviceMesh=distributed.device_mesh.DeviceMesh init_device_mesh=distributed.device_mesh.init_device_mesh
class: BackendConfig ProcessGroupNCCL ProcessGroupGloo AllreduceOptions BroadcastOptions ReduceOptions BarrierOptions GatherOptions ScatterOptions
    ReduceScatterOptions AllToAllOptions AllreduceCoalescedOptions Reducer Logger
refused: split_group shrink_group register_rendezvous_handler breakpoint _get_pg_default_device _resolve_process_group _new_process_group_helper

[torch.distributed.constants]
this part of torch.distributed is not there yet; docs/compatibility/library_names.md lists what is
is: default_pg_timeout=_library_functions.default_pg_timeout

[torch.distributed.device_mesh torch.distributed._tensor.device_mesh]
meshes are made by DeviceMesh and init_device_mesh; nothing keeps a list of them
works: DeviceMesh init_device_mesh
class: _MeshEnv

[torch.distributed.tensor.placement_types torch.distributed.tensor torch.distributed._tensor torch.distributed._tensor.placement_types]
how a tensor would lie on several devices: plain values
works: Placement Shard Replicate Partial _StridedShard

[torch.distributed.tensor torch.distributed._tensor ._api .placement_types torch.distributed._tensor.placement_types .device_mesh ._utils
    .experimental torch.distributed._tensor.experimental .experimental._attention torch.distributed._tensor.api ._dtensor_spec]
this part of DTensor is not there yet; spread tensors by distribute_tensor, and modules by distributed.fsdp.fully_shard
works: DTensor distribute_tensor
class: DTensorSpec TensorMeta
is: DeviceMesh=distributed.device_mesh.DeviceMesh
refused: distribute_module ones empty full rand randn zeros compute_local_shape_and_global_offset implicit_replication
    context_parallel set_rotate_method local_map

[torch.distributed.tensor.parallel .style .api .loss]
tensors on several devices are not there yet; run one process
class: ColwiseParallel RowwiseParallel SequenceParallel PrepareModuleInput PrepareModuleOutput ParallelStyle
refused: parallelize_module loss_parallel

[torch.distributed.fsdp .fully_sharded_data_parallel .api torch.distributed._composable torch.distributed._composable.fsdp
    torch.distributed._composable.fsdp.fully_shard torch.distributed._composable.replicate .wrap ._fully_shard .sharded_grad_scaler ._common_utils
    ._runtime_utils ._traversal_utils ._unshard_param_utils]
FSDP1 and its options are not in ampc; write distributed.fsdp.fully_shard(module), for the blocks of a model first
works: fully_shard FSDPModule UnshardHandle MixedPrecisionPolicy OffloadPolicy CPUOffloadPolicy register_fsdp_forward_method
class: CPUOffload FSDPState DataParallelMeshDims FullOptimStateDictConfig FullStateDictConfig LocalStateDictConfig LocalOptimStateDictConfig
    MixedPrecision OptimStateDictConfig ShardedOptimStateDictConfig ShardedStateDictConfig StateDictConfig StateDictSettings FlatParameter
    ModuleWrapPolicy CustomPolicy
module: FullyShardedDataParallel(fsdp_modules state_dict_type set_state_dict_type optim_state_dict optim_state_dict_to_load rekey_optim_state_dict
    summon_full_params)
is: ShardedGradScaler=distributed.fsdp.ShardedGradScaler
enum: BackwardPrefetch(BACKWARD_PRE BACKWARD_POST)
enum: ShardingStrategy(FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD _HYBRID_SHARD_ZERO2)
enum: StateDictType(FULL_STATE_DICT LOCAL_STATE_DICT SHARDED_STATE_DICT)
enum: OptimStateKeyType(PARAM_NAME PARAM_ID)
refused: replicate share_comm_ctx enable_wrap wrap lambda_auto_wrap_policy size_based_auto_wrap_policy _or_policy
    transformer_auto_wrap_policy always_wrap_policy _module_wrap_policy _get_module_fsdp_state
    _post_backward_final_callback _root_pre_forward _get_fsdp_states clean_tensor_name

[torch.distributed._functional_collectives]
this part of torch.distributed is not there yet; docs/compatibility/library_names.md lists what is
class: AsyncCollectiveTensor
refused: all_gather_tensor all_to_all_single all_to_all_single_autograd permute_tensor wait_tensor all_reduce reduce_scatter_tensor broadcast

[torch.distributed.algorithms.ddp_comm_hooks.default_hooks torch.distributed.algorithms.ddp_comm_hooks torch.distributed.algorithms]
hooks of DistributedDataParallel
works: allreduce_hook fp16_compress_hook fp16_compress_wrapper bf16_compress_hook bf16_compress_wrapper

[torch.distributed.algorithms.join torch.distributed.algorithms]
ranks with different numbers of batches
works: Join Joinable JoinHook

[torch.distributed.algorithms .ddp_comm_hooks .ddp_comm_hooks.powerSGD_hook .ddp_comm_hooks.post_localSGD_hook
    .model_averaging .model_averaging.averagers .model_averaging.utils]
this part of training in several processes is not there yet; use nn.parallel.DistributedDataParallel, whose average needs none of it
class: PowerSGDState PostLocalSGDState ModelAverager PeriodicModelAverager
enum: DDPCommHookType(ALLREDUCE FP16_COMPRESS BF16_COMPRESS POWER_SGD)
refused: batched_powerSGD_hook post_localSGD_hook register_ddp_comm_hook

[torch.distributed.algorithms._checkpoint .checkpoint_wrapper]
wrappers of sharded modules are not there yet; use torch.utils.checkpoint.checkpoint
enum: CheckpointImpl(REENTRANT NO_REENTRANT)
module: CheckpointWrapper OffloadWrapper ActivationWrapper
refused: apply_activation_checkpointing checkpoint_wrapper offload_wrapper

[torch.distributed.checkpoint.state_dict torch.distributed.checkpoint]
state dicts of models that are spread over processes
works: StateDictOptions get_model_state_dict set_model_state_dict get_optimizer_state_dict set_optimizer_state_dict get_state_dict
    set_state_dict

[torch.distributed.checkpoint .state_dict_saver .state_dict_loader .filesystem]
checkpoints of several processes, as a folder
works: save load FileSystemReader FileSystemWriter

[torch.distributed.checkpoint .state_dict .state_dict_loader .state_dict_saver .optimizer .default_planner .planner .metadata .format_utils
    .hf_storage ._consolidate_hf_safetensors .filesystem .stateful .storage .utils]
of torch's checkpoints of several processes this part is not there; distributed.checkpoint.save and load write and read a folder
class: DefaultLoadPlanner DefaultSavePlanner HuggingFaceStorageReader HuggingFaceStorageWriter
    Stateful _EmptyStateDictLoadPlanner Metadata LoadPlanner SavePlanner LoadPlan SavePlan StorageReader StorageWriter
error: CheckpointException
refused: async_save load_state_dict save_state_dict load_sharded_optimizer_state_dict _load_state_dict dcp_to_torch_save torch_save_to_dcp
    consolidate_safetensors_files

[torch.distributed.nn .functional]
this part of torch.distributed is not there yet; docs/compatibility/library_names.md lists what is
refused: all_gather all_reduce broadcast gather reduce scatter all_to_all reduce_scatter

[torch.distributed.optim]
this optimizer is not there yet; use ZeroRedundancyOptimizer, or any of ampc.optim with DistributedDataParallel
works: ZeroRedundancyOptimizer
class: DistributedOptimizer PostLocalSGDOptimizer

[torch.distributed.run torch.distributed.launch]
ampc run starts the processes; call main
works: get_args_parser main parse_args run
refused: config_from_args

[torch.distributed.elastic .multiprocessing .multiprocessing.errors torch.distributed.launcher torch.distributed.launcher.api .rendezvous .agent
    .utils torch.distributed.argparse_util]
torch's own launchers are not in ampc; `ampc run --nproc` starts several processes
itself: record
error: ChildFailedError
class: LaunchConfig Std DefaultLogsSpecs elastic_launch
refused: launch_agent get_free_port

[torch.distributed.pipelining torch.distributed.pipeline torch.distributed.pipeline.sync]
pipelines over several devices are not there yet; run one process
enum: SplitPoint(BEGINNING END)
class: ScheduleGPipe Schedule1F1B PipelineStage
module: Pipe
refused: pipeline pipe_split

[torch.distributed.rpc .api torch.distributed.autograd]
calls between processes are not there yet
gives False: is_available _is_current_rpc_agent_set
class: RRef TensorPipeRpcBackendOptions WorkerInfo
refused: init_rpc rpc_async rpc_sync remote shutdown _all_gather get_worker_info
itself: _require_initialized

[torch.distributed.utils torch.distributed._state_dict_utils torch.distributed._shard torch.distributed._shard.sharded_tensor
    torch.distributed._shard.api torch.distributed._tools torch.distributed._symmetric_memory]
this part of torch.distributed is not there yet; docs/compatibility/library_names.md lists what is
class: ShardedTensor Shard
refused: _sync_module_states _verify_param_shape_across_processes load_with_process_group _offload_state_dict_to_cpu enable_symm_mem_for_group
"""
