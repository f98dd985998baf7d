# trtllm_exporter::publisher        publisher.h, which needs no library
get_filename_component(_trtllm_exporter_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
include(CMakeFindDependencyMacro)
find_dependency(Threads)

if(NOT TARGET trtllm_exporter::publisher)
  add_library(trtllm_exporter::publisher INTERFACE IMPORTED)
  set_target_properties(trtllm_exporter::publisher PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_trtllm_exporter_prefix}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_17
    INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()
set(trtllm_exporter_FOUND TRUE)
