# trtllm_exporter::trtllm_exporter  exporter.h with the shared library
# trtllm_exporter::static           exporter.h with the static library
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

  add_library(trtllm_exporter::trtllm_exporter SHARED IMPORTED)
  set_target_properties(trtllm_exporter::trtllm_exporter PROPERTIES
    IMPORTED_LOCATION "${_trtllm_exporter_prefix}/lib/libtrtllm_exporter.so.0"
    IMPORTED_SONAME libtrtllm_exporter.so.0
    INTERFACE_LINK_LIBRARIES trtllm_exporter::publisher)

  add_library(trtllm_exporter::static STATIC IMPORTED)
  set_target_properties(trtllm_exporter::static PROPERTIES
    IMPORTED_LOCATION "${_trtllm_exporter_prefix}/lib/libtrtllm_exporter.a"
    INTERFACE_COMPILE_DEFINITIONS TRTLLM_EXPORTER_STATIC
    INTERFACE_LINK_LIBRARIES "trtllm_exporter::publisher;gcc_s;m;${CMAKE_DL_LIBS}")
endif()
set(trtllm_exporter_FOUND TRUE)
